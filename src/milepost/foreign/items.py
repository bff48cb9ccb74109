"""The tree of a file as items with names and keys.

Names are the keys of dicts and the positions in lists; the names of modules' tensors, such as ``l1.weight``, are two levels.
Keys are the file's own names, with ``/`` between levels: ``model/l1.weight``, ``optimizer/state/0/exp_avg``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign.pickled import Name, needs_code
from milepost.foreign.stored import Stored

_DEEPEST: Final = 100
_MOST: Final = 4_000_000
"""Items in a file. A few bytes can stand for many where lists hold the same list again and again."""
_ABSENT: Final = object()
_LEAVES: Final = (
    *(Stored, int, float, complex, str, bytes, bytearray, set, frozenset),
    *(np.ndarray, np.generic, type(None)),
)


class Item:
    """Something in a file that has a name.

    Attributes:
        key: Its key; several tensors cannot have one.
        value: What is there: a `Stored`, a plain value, a dict, a list; `has_value` tells whether there is anything.
        children: What is below it.
    """

    __slots__ = ("children", "key", "value")

    def __init__(self, key: str, value: Any = _ABSENT) -> None:
        self.key = key
        self.value = value
        self.children: dict[str, Item] = {}

    @property
    def has_value(self) -> bool:
        """Whether this is more than the first part of a longer name."""
        return self.value is not _ABSENT

    @property
    def is_leaf(self) -> bool:
        """Whether this is a tensor or a plain value."""
        return self.has_value and not isinstance(self.value, (Mapping, list, tuple))


def items_of(tree: Any, *, dotted: bool) -> Item:
    """Makes items of a tree.

    Args:
        tree: The tree.
        dotted: Whether names are paths with dots.

    Raises:
        CorruptCheckpointError: The tree has no end.
        UnsupportedError: It has more items than any state has.
    """
    if not isinstance(tree, (Mapping, list, tuple)):
        raise UnsupportedError(
            "the file holds a single value, which has no name that an object could be found by",
            expected="a dict of tensors, as state_dict() returns",
            found="a tensor" if isinstance(tree, Stored) else f"a {type(tree).__name__}",
            remedy="save it in a dict",
        )
    root = Item("", tree)
    taken = {""}
    pending: list[tuple[Item, int]] = [(root, 0)]
    count = 0
    while pending:
        item, depth = pending.pop()
        if depth > _DEEPEST:
            raise CorruptCheckpointError(
                "a state of too many levels, or one that holds itself",
                key=item.key,
                expected=f"{_DEEPEST} levels or less",
            )
        for name, value in _members(item.value):
            count += 1
            if count > _MOST:
                raise UnsupportedError("a state of too many parts", expected=f"{_MOST} or less")
            own = f"{item.key}/{name}" if item is not root else name
            number = 1
            while own in taken:  # 0 and "0", or "a/b" and "b" in "a"
                number += 1
                own = f"{item.key}/{name}_{number}" if item is not root else f"{name}_{number}"
            taken.add(own)
            child = _place(item, name, own, dotted=dotted)
            child.value = value
            child.key = own
            if isinstance(value, (Mapping, list, tuple)):
                pending.append((child, depth + 1))
            elif isinstance(value, Name):
                raise needs_code(value).with_context(key=own)
            elif not isinstance(value, _LEAVES):
                raise UnsupportedError("the file holds what is no value", key=own, found=f"a {type(value).__name__}")
    return root


def _members(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(name if type(name) is str else f"{name!s:.200}", each) for name, each in value.items()]
    return [(str(index), each) for index, each in enumerate(value)]


def _place(item: Item, name: str, key: str, *, dotted: bool) -> Item:
    """The item for a name, which may be several levels down."""
    parts = name.split(".") if dotted and "." in name else [name]
    if not all(parts):
        parts = [name]
    for part in parts[:-1]:
        item = item.children.setdefault(part, Item(key))
    last = parts[-1]
    existing = item.children.get(last)
    if existing is not None and existing.has_value:  # of another key that is the same as text
        last = key
    return item.children.setdefault(last, Item(key))


def leaves(item: Item) -> Iterable[Item]:
    """All items below one, itself included, that are tensors or plain values."""
    pending = [item]
    while pending:
        each = pending.pop()
        if each.is_leaf:
            yield each
        pending += each.children.values()


def has_tensors(item: Item) -> bool:
    """Whether there is a tensor anywhere below."""
    return any(isinstance(leaf.value, Stored) for leaf in leaves(item))
