"""A table of objects by identity, for as long as they live. How objects compare or hash does not matter."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class _Reference(weakref.ref[Any]):
    """A weak reference to an object in a table, with its identity and its value. A table may have millions of them."""

    __slots__ = ("identity", "value")

    identity: int
    value: Any


class _Kept:
    """The same for an object that allows no weak reference."""

    __slots__ = ("obj", "value")

    def __init__(self, obj: Any, value: Any) -> None:
        self.obj = obj
        self.value = value

    def __call__(self) -> Any:
        return self.obj


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

    __slots__ = ("_entries", "_forget")

    def __init__(self) -> None:
        self._entries: dict[int, _Reference | _Kept] = {}
        remove = self._entries.pop

        # It uses no names of modules, which may be gone when the interpreter ends.
        def forget(reference: Any) -> None:
            remove(reference.identity, None)

        self._forget = forget

    def get(self, obj: Any) -> _Value | None:
        """The value for an object, or None."""
        entry = self._entries.get(id(obj))
        return entry.value if entry is not None and entry() is obj else None

    def put(self, obj: Any, value: _Value) -> _Value | None:
        """Sets the value for an object.

        Returns:
            The value that it had before, or None.

        Raises:
            TypeError: The object allows no weak reference.
        """
        identity = id(obj)
        entry = self._entries.get(identity)
        if entry is not None and entry() is obj:
            former: _Value = entry.value
            entry.value = value
            return former
        reference = _Reference(obj, self._forget)
        reference.identity = identity
        reference.value = value
        self._entries[identity] = reference
        return None

    def __setitem__(self, obj: Any, value: _Value) -> None:
        """As `put`."""
        self.put(obj, value)

    def keep(self, obj: Any, value: _Value) -> None:
        """Sets the value for an object. An object that allows no weak reference is kept alive forever."""
        try:
            self[obj] = value
        except TypeError:
            self._entries[id(obj)] = _Kept(obj, value)

    def reference(self, obj: Any) -> Callable[[], Any]:
        """A function that returns an object in the table, or None when the object no longer exists."""
        entry = self._entries[id(obj)]
        return entry if isinstance(entry, _Kept) else weakref.ref(obj)

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
        for entry in list(self._entries.values()):
            obj = entry()
            if obj is not None:
                yield obj, entry.value
