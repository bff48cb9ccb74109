"""What is known about objects by their identity, for as long as they live; objects may compare and hash as they like."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")
_Entry = tuple[Callable[[], Any], _Value]


class ByIdentity(Generic[_Value]):
    """A table of values by the identities of objects, to which it refers weakly.

    Example:
        >>> class Thing: ...
        >>> thing, table = Thing(), ByIdentity()
        >>> table[thing] = "known"
        >>> table.get(thing), table.get(Thing()), len(table)
        ('known', None, 1)
        >>> del thing
        >>> len(table)
        0
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[_Value]] = {}

    def get(self, obj: Any) -> _Value | None:
        """The value for an object, or None."""
        entry = self._entries.get(id(obj))
        return entry[1] if entry is not None and entry[0]() is obj else None

    def __setitem__(self, obj: Any, value: _Value) -> None:
        """Sets the value for an object.

        Raises:
            TypeError: The object allows no weak reference.
        """
        # What removes the entry when its object is gone refers to no module, of which an interpreter at its end may have none.
        self._entries[id(obj)] = (weakref.ref(obj, partial(self._entries.pop, id(obj))), value)

    def keep(self, obj: Any, value: _Value) -> None:
        """Sets the value for an object, which is kept alive for ever if it allows no weak reference."""
        try:
            self[obj] = value
        except TypeError:
            self._entries[id(obj)] = (lambda: obj, value)

    def reference(self, obj: Any) -> Callable[[], Any]:
        """What returns an object that is in the table, or None once that is gone."""
        return self._entries[id(obj)][0]

    def pop(self, obj: Any) -> _Value | None:
        """Removes an object; returns its value, or None if it is not in the table."""
        value = self.get(obj)
        if value is not None:
            self._entries.pop(id(obj), None)
        return value

    def __contains__(self, obj: object) -> bool:
        return self.get(obj) is not None

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[Any, _Value]]:
        """The objects that live, and their values; the table may change meanwhile."""
        for reference, value in list(self._entries.values()):
            obj = reference()
            if obj is not None:
                yield obj, value
