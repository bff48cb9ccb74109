"""Lists and dicts that TensorFlow makes of those that are assigned to its objects.

TensorFlow notes what is added to one, and refuses to save it once members were replaced, moved or deleted. Then what
it holds now is saved instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from milepost.adapters.tensorflow.private import DictWrapper, ListWrapper
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.errors import UntrackableError
from milepost.graph.adapter import adapter_of


class ListWrapperAdapter(TrackableAdapter):
    """Lists."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, ListWrapper)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        try:
            return super().children(obj)
        except UntrackableError:
            return [(str(index), member) for index, member in enumerate(obj)]


class DictWrapperAdapter(TrackableAdapter):
    """Dicts."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, DictWrapper)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        try:
            return super().children(obj)
        except UntrackableError:
            if any(not isinstance(key, str) and adapter_of(member) is not None for key, member in obj.items()):
                raise
            return [(key, member) for key, member in obj.items() if isinstance(key, str)]
