"""What is remembered about live objects, by identity and for as long as they live."""

from __future__ import annotations

import sys
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


class Kept:
    """Objects that one restore gave values to and that allow no weak reference; kept for as long as this is.

    Args:
        uid: Number of the restore.
    """

    __slots__ = ("__weakref__", "objects", "uid")

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.objects: dict[int, Any] = {}

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        for identity in self.objects:
            entry = _kept.get(identity)
            if entry is not None and entry[1] == self.uid:
                del _kept[identity]


_kept: Final[dict[int, tuple[weakref.ref[Kept], int]]] = {}
_restored: Final[dict[int, tuple[weakref.ref[Any], int]]] = {}


def last_restore(obj: Any) -> int:
    """Number of the newest restore that gave this object its values; 0 if none did."""
    identity = id(obj)
    entry = _restored.get(identity)
    if entry is not None and entry[0]() is obj:
        return entry[1]
    kept = _kept.get(identity)
    holder = kept[0]() if kept is not None else None
    return holder.uid if holder is not None and holder.objects.get(identity) is obj else 0


def remember_restore(obj: Any, uid: int, kept: Kept | None = None) -> None:
    """Records that restore number ``uid`` gave this object its values; without ``kept``, only if it can be weakly."""
    identity = id(obj)
    try:
        reference = weakref.ref(obj, lambda _: _restored.pop(identity, None))
    except TypeError:
        if kept is not None:
            kept.objects[identity] = obj
            _kept[identity] = (weakref.ref(kept), uid)
        return
    _restored[identity] = (reference, uid)
