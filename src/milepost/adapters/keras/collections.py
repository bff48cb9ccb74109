"""The lists and dicts that Keras makes of those that are assigned to its objects.

While values wait on one, its class is another that gives them to what is added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from milepost.adapters.keras.attributes import is_state
from milepost.adapters.keras.private import TrackedDict, TrackedList, TrackedOrderedDict, register_tree_node_class
from milepost.graph.adapter import adapter_of_type, register
from milepost.graph.native import DictAdapter, ListAdapter
from milepost.graph.waiting import admit, waiting_on


class WaitingList(TrackedList):  # type: ignore[misc]
    """A list on which values wait."""

    def append(self, value: Any) -> None:
        super().append(admit(self, str(len(self)), value))
        _stop_waiting(self, TrackedList)

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)


class WaitingDict(TrackedDict):  # type: ignore[misc]
    """A dict on which values wait."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, admit(self, key, value) if isinstance(key, str) else value)
        _stop_waiting(self, TrackedDict)

    def update(self, mapping: Any) -> None:
        for key, value in mapping.items():
            self[key] = value


class WaitingOrderedDict(TrackedOrderedDict):  # type: ignore[misc]
    """An ordered dict on which values wait."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, admit(self, key, value) if isinstance(key, str) else value)
        _stop_waiting(self, TrackedOrderedDict)

    def update(self, mapping: Any) -> None:
        for key, value in mapping.items():
            self[key] = value


_WAITING = {TrackedList: WaitingList, TrackedDict: WaitingDict, TrackedOrderedDict: WaitingOrderedDict}


def _stop_waiting(obj: Any, kind: type) -> None:
    if not waiting_on(obj):
        obj.__class__ = kind


def _register_with_tree() -> None:
    """Makes Keras' tree functions look into the waiting collections as into the others."""
    for kind in _WAITING.values():
        register_tree_node_class(kind)


class TrackedListAdapter(ListAdapter):
    """Lists of Keras objects."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, TrackedList)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        return [(name, child) for name, child in super().children(obj) if _is_edge(child)]

    def watch(self, obj: Any) -> None:
        obj.__class__ = _WAITING.get(type(obj), type(obj))


class TrackedDictAdapter(DictAdapter):
    """Dicts of Keras objects."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (TrackedDict, TrackedOrderedDict))

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        return [(name, child) for name, child in super().children(obj) if _is_edge(child)]

    def watch(self, obj: Any) -> None:
        obj.__class__ = _WAITING.get(type(obj), type(obj))


def _is_edge(value: Any) -> bool:
    return is_state(value) or (isinstance(value, (list, tuple, dict)) and adapter_of_type(type(value)) is not None)


_register_with_tree()
register(TrackedListAdapter())
register(TrackedDictAdapter())
