"""A table of objects by identity, for as long as they live. How objects compare or hash does not matter."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")
_Entry = tuple[Callable[[], Any], _Value]


class ByIdentity(Generic[_Value]):
    """A table with objects as keys, by identity. It refers to them weakly.

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
        # The callback uses no names of modules, which may be gone when the interpreter ends.
        self._entries[id(obj)] = (weakref.ref(obj, partial(self._entries.pop, id(obj))), value)

    def keep(self, obj: Any, value: _Value) -> None:
        """Sets the value for an object. An object that allows no weak reference is kept alive for ever."""
        try:
            self[obj] = value
        except TypeError:
            self._entries[id(obj)] = (lambda: obj, value)

    def reference(self, obj: Any) -> Callable[[], Any]:
        """A function that returns an object in the table, or None when the object no longer exists."""
        return self._entries[id(obj)][0]

    def pop(self, obj: Any) -> _Value | None:
        """Removes an object. Returns its value, or None if the object is not in the table."""
        value = self.get(obj)
        if value is not None:
            self._entries.pop(id(obj), None)
        return value

    def __contains__(self, obj: object) -> bool:
        return self.get(obj) is not None

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[Any, _Value]]:
        """The living objects and their values. The table may change while this is used."""
        for reference, value in list(self._entries.values()):
            obj = reference()
            if obj is not None:
                yield obj, value
