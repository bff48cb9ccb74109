"""What is remembered about live objects, by identity and for as long as they live."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

Reference = Callable[[], Any]
"""Returns the object, or None once it is gone."""


def reference_to(obj: Any) -> Reference:
    """A weak reference where the object allows one; tuples and NumPy scalars do not, and are kept."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj


_restored: Final[dict[int, tuple[weakref.ref[Any], int]]] = {}


def last_restore(obj: Any) -> int:
    """Number of the newest restore that gave this object its values; 0 if none did."""
    entry = _restored.get(id(obj))
    return entry[1] if entry is not None and entry[0]() is obj else 0


def remember_restore(obj: Any, uid: int) -> None:
    """Records that restore number ``uid`` gave this object its values."""
    identity = id(obj)
    try:
        reference = weakref.ref(obj, lambda _: _restored.pop(identity, None))
    except TypeError:
        return  # such objects are replaced by each restore, so they have no history
    _restored[identity] = (reference, uid)
