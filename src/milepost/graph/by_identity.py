"""Tables of what is known about objects by their identity, for as long as they live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def forgetting(table: dict[int, Any], identity: int) -> Callable[[object], None]:
    """What a weak reference calls when its object is gone: removes the object's entry, also while the interpreter ends.

    Args:
        table: The table, which a module that is taken apart at the end of the process no longer has under its name.
        identity: The object's.

    Example:
        >>> class Thing: ...
        >>> import weakref
        >>> thing, table = Thing(), {}
        >>> table[id(thing)] = weakref.ref(thing, forgetting(table, id(thing)))
        >>> del thing
        >>> table
        {}
    """
    pop = table.pop

    def forget(_: object) -> None:
        pop(identity, None)

    return forget
