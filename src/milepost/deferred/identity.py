"""Facts about live objects that are remembered by identity, for as long as the objects live."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from milepost.facts import Fact
from milepost.facts import reference_to as reference_to
from milepost.graph.trees.places import Place

Reference = Callable[[], Any]
"""A function that returns an object, or None if the object no longer exists."""


class Bindings:
    """Which live object matches which saved node, in one restore.

    Args:
        uid: Number of the restore.

    Attributes:
        uid: As given.
        kept: The objects that took values and allow no weak reference, by identity. They are kept as long as this
            object exists.
    """

    __slots__ = ("__weakref__", "_copies", "_references", "kept", "uid")

    def __init__(self, uid: int) -> None:
        self.kept: dict[int, Any] = {}
        self.uid = uid
        self._references: dict[int, Reference] = {}
        self._copies: list[tuple[int, Reference]] = []

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return
        for identity in getattr(self, "kept", ()):  # Ctrl-C may have come before there is any
            entry = _kept.get(identity)
            if entry is not None and entry[1] == self.uid:
                del _kept[identity]

    def __getitem__(self, node: int) -> Any:
        """The live object that matches a node, or None."""
        reference = self._references.get(node)
        return reference() if reference is not None else None

    def __setitem__(self, node: int, obj: Any) -> None:
        self._references[node] = reference_to(obj)

    def update(self, objects: Mapping[int, Any], successors: Mapping[int, Any]) -> None:
        """Binds live objects, or their successors.

        Args:
            objects: The live object of each node.
            successors: Successors by the identity of the object that each replaces.
        """
        references, reference = self._references, weakref.ref
        for node, obj in objects.items():
            obj = successors.get(id(obj), obj) if successors else obj
            try:
                references[node] = reference(obj)
            except TypeError:
                references[node] = reference_to(obj)

    def add_copies(self, objects: Sequence[tuple[int, Any]], successors: Mapping[int, Any]) -> None:
        """Remembers more live objects that have the values of a node.

        Args:
            objects: The objects, each after its node.
            successors: As for `update`.
        """
        self._copies += [(node, reference_to(successors.get(id(obj), obj))) for node, obj in objects]

    def __delitem__(self, node: int) -> None:
        self._references.pop(node, None)
        self._copies = [(each, reference) for each, reference in self._copies if each != node]

    def __contains__(self, node: object) -> bool:
        """Whether an object matched a node, even if the object no longer exists."""
        return node in self._references

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._references))

    def __len__(self) -> int:
        return len(self._references)

    def living(self) -> list[tuple[int, Any]]:
        """The nodes whose live objects still exist, each with its object. Of several objects of a node, the one that matches it is the last."""
        pairs = itertools.chain(self._copies, self._references.items())
        return [(node, obj) for node, reference in pairs if (obj := reference()) is not None]

    def exchange(self, others: Mapping[int, Any]) -> None:
        """Replaces live objects by others, given by the identities of the replaced objects."""
        for node, reference in self._references.items():
            other = others.get(id(reference()))
            if other is not None:
                self._references[node] = reference_to(other)
        self._copies = [
            (node, reference if (other := others.get(id(reference()))) is None else reference_to(other))
            for node, reference in self._copies
        ]


uids: Final = itertools.count(1)
"""The numbers of restores. Later ones win over earlier ones."""
_kept: Final[dict[int, tuple[weakref.ref[Bindings], int]]] = {}
_restored: Final[Fact[int]] = Fact()
"""For all objects but places, which hold the number themselves."""
_newest: Final = [0]
"""The highest number of a restore that has given an object its values."""


def any_restore_since(uid: int) -> bool:
    """Whether restore number ``uid`` or a later one has given any object its values."""
    return _newest[0] >= uid


def last_restore(obj: Any) -> int:
    """Number of the newest restore that gave this object its values; 0 if none did."""
    if isinstance(obj, Place):
        return obj.restored
    uid = _restored.get(obj)
    if uid is not None:
        return uid
    if not _kept:
        return 0
    kept = _kept.get(id(obj))
    holder = kept[0]() if kept is not None else None
    return holder.uid if holder is not None else 0  # it keeps the object, so no other one has its identity


def remember_restore(obj: Any, uid: int, bindings: Bindings | None = None) -> int:
    """Records that restore number ``uid`` gave this object its values. Without ``bindings``, this needs a weak
    reference to the object.

    Returns:
        What `last_restore` returned before.
    """
    if uid > _newest[0]:
        _newest[0] = uid
    if isinstance(obj, Place):
        before, obj.restored = obj.restored, uid
        return before
    try:
        return _restored.put(obj, uid) or 0
    except TypeError:
        before = last_restore(obj)
        if bindings is not None:
            bindings.kept[id(obj)] = obj
            _kept[id(obj)] = (weakref.ref(bindings), uid)
        return before


def undo_remembering(obj: Any, uid: int, before: int) -> None:
    """Takes back `remember_restore`, because the restore failed after all.

    Args:
        obj: The object.
        uid: The number that was recorded.
        before: What `remember_restore` returned.
    """
    if last_restore(obj) != uid:
        return
    if isinstance(obj, Place):
        obj.restored = before
    else:
        _restored.pop(obj)
        _kept.pop(id(obj), None)
        if before:
            remember_restore(obj, before)
