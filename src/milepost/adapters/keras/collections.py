"""The lists and dicts that Keras makes of those that are assigned to its objects.

While values wait on one, its class is another that gives them to what is added.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Final, Self

from milepost.adapters.keras.attributes import is_state
from milepost.adapters.keras.private import TrackedDict, TrackedList, TrackedOrderedDict, register_tree_node_class
from milepost.deferred.pending import admit, waiting_on
from milepost.deferred.rescan import look_again
from milepost.graph.adapter import adapter_of_type, register
from milepost.graph.by_identity import ByIdentity
from milepost.graph.native import DictAdapter, ListAdapter


class WaitingList(TrackedList):  # type: ignore[misc]
    """A list on which values wait."""

    def append(self, value: Any) -> None:
        super().append(admit(self, str(len(self)), value))
        _ask_holder(self)
        _stop_waiting(self, TrackedList)

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index, value)
        _ask_holder(self)

    def __iadd__(self, values: Iterable[Any]) -> Self:
        self.extend(values)
        return self

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)


class WaitingDict(TrackedDict):  # type: ignore[misc]
    """A dict on which values wait."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, admit(self, key, value) if isinstance(key, str) else value)
        _ask_holder(self)
        _stop_waiting(self, TrackedDict)

    def update(self, mapping: Any) -> None:
        for key, value in mapping.items():
            self[key] = value


class WaitingOrderedDict(TrackedOrderedDict):  # type: ignore[misc]
    """An ordered dict on which values wait."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, admit(self, key, value) if isinstance(key, str) else value)
        _ask_holder(self)
        _stop_waiting(self, TrackedOrderedDict)

    def update(self, mapping: Any) -> None:
        for key, value in mapping.items():
            self[key] = value


_WAITING = {TrackedList: WaitingList, TrackedDict: WaitingDict, TrackedOrderedDict: WaitingOrderedDict}


_holders: Final[ByIdentity[weakref.ref[Any]]] = ByIdentity()
"""The holders of lists and dicts that were empty when values came to wait on these holders."""


def watch_empty(holder: Any) -> None:
    """Has what is added to the empty lists and dicts of an object, which are no edges yet, find its values."""
    for value in list(vars(holder).values()):
        kind = type(value)
        if (kind in _WAITING or kind in _WAITING.values()) and not value:
            _holders[value] = weakref.ref(holder)
            value.__class__ = _WAITING.get(kind, kind)


def _holder_of(obj: Any) -> Any:
    known = _holders.get(obj)
    return known() if known is not None else None


def _ask_holder(obj: Any) -> None:
    holder = _holder_of(obj)
    if holder is not None:
        look_again(holder)


def _stop_waiting(obj: Any, kind: type) -> None:
    holder = _holder_of(obj)
    if not waiting_on(obj) and (holder is None or not waiting_on(holder)):
        _holders.pop(obj)
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

    def on_deferred(self, obj: Any) -> None:
        obj.__class__ = _WAITING.get(type(obj), type(obj))


class TrackedDictAdapter(DictAdapter):
    """Dicts of Keras objects."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (TrackedDict, TrackedOrderedDict))

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        return [(name, child) for name, child in super().children(obj) if _is_edge(child)]

    def on_deferred(self, obj: Any) -> None:
        obj.__class__ = _WAITING.get(type(obj), type(obj))


def _is_edge(value: Any) -> bool:
    return is_state(value) or (isinstance(value, (list, tuple, dict)) and adapter_of_type(type(value)) is not None)


_register_with_tree()
register(TrackedListAdapter())
register(TrackedDictAdapter())
