"""Saved values of other shapes than the live objects have, where a framework changes the shape itself when it loads state.

The objects are asked only if a value does not fit. So a restore in which all values fit takes no step more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from milepost.bundle import BundleReader
from milepost.graph.adapter import Value, adapter_of
from milepost.graph.variable import shape_fits
from milepost.restoring.match import Match
from milepost.tensor import TensorSpec


def reshape(reader: BundleReader, match: Match, holders: Iterable[Any]) -> bool:
    """Finds the objects that are to get the saved shape, although it is not that of the live object. No object changes.

    Args:
        reader: The open checkpoint.
        match: The match. Values of these objects are replaced by values of the saved shape. Those that an object adapts to the shape of its leaf
            are left to it.
        holders: The live objects of the match, those nearest to the root first.

    Returns:
        Whether there are any.
    """
    takes = match.takes
    misfits: dict[int, int] = {}
    saved: list[tuple[Any, TensorSpec]] = []
    for number, take in enumerate(takes):
        for value, key in take.values:
            spec = reader.spec(key)
            if spec.dtype is value.dtype and not shape_fits(spec.shape, value.shape):
                misfits[id(take.obj)] = number
                saved.append((take.obj, spec))
    accepted: set[int] = set()
    adapted: set[int] = set()
    nodes = {id(obj): node for node, obj in reversed(match.bindings.items())} if saved else {}
    for holder in holders if saved else ():
        adapter = adapter_of(holder)
        if adapter is not None and "reshaped" in adapter.overrides:
            accepted.update(map(id, adapter.reshaped(holder, saved)))
            identities = set(map(id, adapter.adapted(holder, saved))) - accepted - adapted
            if identities and id(holder) in nodes:
                adapted |= identities
                match.adapted.add(nodes[id(holder)])
    for identity in accepted:
        take = takes[misfits[identity]]
        values = [(_of_shape(value, reader.spec(key)), key) for value, key in take.values]
        takes[misfits[identity]] = take._replace(values=values)
    for identity in adapted:
        del match.bindings[takes[misfits[identity]].node]
    match.takes = [take for take in takes if id(take.obj) not in adapted]
    return bool(accepted or adapted)


def _of_shape(value: Value, saved: TensorSpec) -> Value:
    """A value that `Adapter.assign` takes in its saved shape."""
    if shape_fits(saved.shape, value.shape):
        return value
    return Value(value.name, value.dtype, saved.shape, value.source)
