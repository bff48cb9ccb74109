"""The lists, dicts and tuples into which TensorFlow turns those that are assigned to its objects.

TensorFlow records the members that are added to a container, and refuses to save the container after members were replaced, moved or
deleted. milepost saves the members that it holds now. It also saves members of other libraries, which TensorFlow ignores, in a field
of the object graph that TensorFlow skips.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from milepost.adapters.tensorflow.private import DictWrapper, ListWrapper, Trackable, TupleWrapper
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.errors import UntrackableError
from milepost.graph.adapter import adapter_of, adapter_of_type
from milepost.graph.native import unnamed


class ContainerAdapter(TrackableAdapter):
    """Lists, dicts and tuples."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (ListWrapper, DictWrapper, TupleWrapper))

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        try:
            children = list(super().children(obj))
        except UntrackableError:
            return [*_members(obj), *_unnamed(obj)]
        names = {name for name, _ in children}
        return [*children, *(pair for pair in _of_others(_members(obj)) if pair[0] not in names)]

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        return [name for name, _ in _of_others(_members(obj))]


def _members(obj: Any) -> list[tuple[str, Any]]:
    if isinstance(obj, dict):
        return [(key, member) for key, member in obj.items() if isinstance(key, str)]
    return [(str(index), member) for index, member in enumerate(obj)]


def _unnamed(obj: Any) -> list[tuple[str, Any]]:
    """Members that a save refuses, because their keys are not strings."""
    if not isinstance(obj, dict):
        return []
    others = [(key, member) for key, member in obj.items() if not isinstance(key, str)]
    return [(str(key), unnamed(obj, key, member)) for key, member in others if adapter_of(member) is not None]


def _of_others(members: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Members of other libraries, which TensorFlow does not track. Arrays are settings, and not among them."""
    return [
        (name, member)
        for name, member in members
        if not isinstance(member, (Trackable, np.ndarray, np.generic, tuple))
        and adapter_of_type(type(member)) is not None
    ]
