"""The lists and dicts into which Keras turns those that are assigned to its objects.

While values are deferred for the members of one, it has a class whose methods restore the members that are added.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Self

from milepost.adapters.keras.attributes import is_state
from milepost.adapters.keras.private import TrackedDict, TrackedList, TrackedOrderedDict, register_tree_node_class
from milepost.deferred.rescan import look_again
from milepost.deferred.table import admit, deferred_on
from milepost.facts import Fact
from milepost.graph.adapter import Adapter, adapter_of_type, register
from milepost.graph.native import DictAdapter, ListAdapter
from milepost.graph.omissions import Unnamed


class WatchedList(TrackedList):  # type: ignore[misc]  # which is untyped
    """A list for whose members values are deferred."""

    def append(self, value: Any) -> None:
        super().append(admit(self, str(len(self)), value))
        _ask_holder(self)
        _stop_watching(self, TrackedList)

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index, value)
        _ask_holder(self)

    def __iadd__(self, values: Iterable[Any]) -> Self:
        self.extend(values)
        return self

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)


class _WatchedMembers:
    """The methods of dicts for whose members values are deferred. The class of Keras comes after this one.

    This class derives from no dict. Otherwise Python would refuse to change the class of a dict of Keras to one that derives from this.
    """

    __slots__ = ()
    _kind: ClassVar[type]
    """The class of the dict while nothing is deferred."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, admit(self, key, value) if isinstance(key, str) else value)  # type: ignore[misc]  # Keras' method
        _ask_holder(self)
        _stop_watching(self, self._kind)

    def update(self, mapping: Any) -> None:
        for key, value in mapping.items():
            self[key] = value


class WatchedDict(_WatchedMembers, TrackedDict):  # type: ignore[misc]  # which is untyped
    """A dict for whose members values are deferred."""

    _kind = TrackedDict


class WatchedOrderedDict(_WatchedMembers, TrackedOrderedDict):  # type: ignore[misc]  # which is untyped
    """An ordered dict for whose members values are deferred."""

    _kind = TrackedOrderedDict


_WATCHED = {TrackedList: WatchedList, TrackedDict: WatchedDict, TrackedOrderedDict: WatchedOrderedDict}


_holders: Final[Fact[weakref.ref[Any]]] = Fact()
"""For lists and dicts that were empty when values were deferred for their holder: the holder."""


def watch_empty(holder: Any) -> None:
    """Watches the empty lists and dicts of an object, which are not children yet, so that members that are added are restored."""
    for value in list(vars(holder).values()):
        kind = type(value)
        if (kind in _WATCHED or kind in _WATCHED.values()) and not value:
            _holders[value] = weakref.ref(holder)
            value.__class__ = _WATCHED.get(kind, kind)


def _holder_of(obj: Any) -> Any:
    known = _holders.get(obj)
    return known() if known is not None else None


def _ask_holder(obj: Any) -> None:
    holder = _holder_of(obj)
    if holder is not None:
        look_again(holder)


def _stop_watching(obj: Any, kind: type) -> None:
    holder = _holder_of(obj)
    if not deferred_on(obj) and (holder is None or not deferred_on(holder)):
        _holders.pop(obj)
        obj.__class__ = kind


def _register_with_tree() -> None:
    """Makes Keras' tree functions treat the watched classes as the others."""
    for kind in _WATCHED.values():
        register_tree_node_class(kind)


class _TrackedAdapter(Adapter):
    """What the adapters of lists and of dicts of Keras objects share. Those of Python's lists and dicts come after it."""

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        pairs = super().children(obj)
        return [(name, child) for name, child in pairs if _is_edge(child.value if type(child) is Unnamed else child)]

    def on_deferred(self, obj: Any) -> None:
        obj.__class__ = _WATCHED.get(type(obj), type(obj))


class TrackedListAdapter(_TrackedAdapter, ListAdapter):
    """Lists of Keras objects."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, TrackedList)


class TrackedDictAdapter(_TrackedAdapter, DictAdapter):
    """Dicts of Keras objects."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (TrackedDict, TrackedOrderedDict))


def _is_edge(value: Any) -> bool:
    return is_state(value) or (isinstance(value, (list, tuple, dict)) and adapter_of_type(type(value)) is not None)


_register_with_tree()
register(TrackedListAdapter())
register(TrackedDictAdapter())
