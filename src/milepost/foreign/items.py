"""The tree of a file as items with names and keys.

Names are the keys of dicts and the positions in lists; the names of modules' tensors, such as ``l1.weight``, are two levels.
Keys are the file's own names, with ``/`` between levels: ``model/l1.weight``, ``optimizer/state/0/exp_avg``.

What a file may hold: 1,000,000 items, counted wherever they stand, 100 levels, and 128 MiB of keys. More is refused, since a few
bytes can stand for very many items where lists hold the same list again and again. An item takes some 500 bytes of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign.pickled import Name, needs_code
from milepost.foreign.stored import Stored

_DEEPEST: Final = 100
_MOST: Final = 1_000_000
_MOST_CHARACTERS: Final = 128 << 20
"""Characters in the keys of a file. Names of many letters, nested, are in the keys of all that is below them."""
_SHOWN: Final = 200
_MOST_PACKED: Final = 60
"""Levels of plain state, of which those of `milepost.graph.plain_state` are made."""
_ABSENT: Final = object()
_NOTHING: Final[Mapping[str, Any]] = {}
_LEAVES: Final = (
    *(Stored, int, float, complex, str, bytes, bytearray, set, frozenset),
    *(np.ndarray, np.generic, type(None)),
)


class Item:
    """Something in a file that has a name.

    Attributes:
        key: Its key; several tensors cannot have one.
        value: What is there: a `Stored`, a plain value, a dict, a list; `has_value` tells whether there is anything.
    """

    __slots__ = ("_children", "key", "value")

    def __init__(self, key: str, value: Any = _ABSENT) -> None:
        self.key = key
        self.value = value
        self._children: dict[str, Item] | None = None

    @property
    def children(self) -> Mapping[str, Item]:
        """What is below it."""
        return _NOTHING if self._children is None else self._children

    def child(self, name: str, key: str) -> Item:
        """The child of this name, which is made if there is none."""
        if self._children is None:
            self._children = {}
        return self._children.setdefault(name, Item(key))

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
    numbers: dict[str, int] = {}
    pending: list[tuple[Item, int]] = [(root, 0)]
    count = extra_levels = characters = 0
    while pending:
        item, depth = pending.pop()
        count += len(item.value)
        if count > _MOST:
            raise _too_many(item.key, count, characters)
        for name, value in _members(item.value):
            parts = _parts(name, dotted=dotted)
            levels = len(parts)
            if depth + levels > _DEEPEST:
                raise CorruptCheckpointError(
                    "a state of too many levels, or one that holds itself",
                    key=f"{item.key}/{name}"[:_SHOWN],
                    expected=f"{_DEEPEST} levels or less",
                )
            extra_levels += levels - 1
            characters += len(item.key) + len(name)
            if count + extra_levels > _MOST or characters > _MOST_CHARACTERS:
                raise _too_many(f"{item.key}/{name}", count + extra_levels, characters)
            base = own = f"{item.key}/{name}" if item is not root else name
            while own in taken:  # 0 and "0", or "a/b" and "b" in "a"
                numbers[base] = number = numbers.get(base, 1) + 1
                own = f"{base}_{number}"
            taken.add(own)
            child = _place(item, parts, own)
            child.value = value
            child.key = own
            if isinstance(value, (Mapping, list, tuple)):
                pending.append((child, depth + levels))
            elif isinstance(value, Name):
                raise needs_code(value).with_context(key=own)
            elif not isinstance(value, _LEAVES):
                raise UnsupportedError("the file holds what is no value", key=own, found=f"a {type(value).__name__}")
    return root


def _too_many(key: str, count: int, characters: int) -> UnsupportedError:
    return UnsupportedError(
        "a state of too many parts, or of parts with too long names",
        key=key[:_SHOWN],
        expected=f"{_MOST} parts or less, and {_MOST_CHARACTERS} characters of names",
        found=f"{count} parts, and {characters} characters, before the end",
        remedy="save long lists as tensors",
    )


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return ((name if type(name) is str else f"{name!s:.200}", each) for name, each in value.items())
    return ((str(index), each) for index, each in enumerate(value))


def _parts(name: str, *, dotted: bool) -> list[str]:
    """The levels that a name stands for."""
    parts = name.split(".") if dotted and "." in name else [name]
    return parts if all(parts) and len(parts) < _DEEPEST else [name]


def _place(item: Item, parts: Sequence[str], key: str) -> Item:
    """The item for a name, which may be several levels down."""
    for part in parts[:-1]:
        item = item.child(part, key)
    last = parts[-1]
    existing = item.children.get(last)
    if existing is not None and existing.has_value:  # of another key that is the same as text
        last = key
    return item.child(last, key)


def leaves(item: Item) -> Iterable[Item]:
    """All items below one, itself included, that are tensors or plain values."""
    pending = [item]
    while pending:
        each = pending.pop()
        if each.is_leaf:
            yield each
        pending += each.children.values()


def packable(root: Item) -> set[int]:
    """The identities of all items that are wholly plain state: no tensors, no names of types, not too many levels."""
    order = [root]
    for item in order:
        order += item.children.values()
    levels: dict[int, int] = {}
    for item in reversed(order):  # children come before what holds them
        below = [levels.get(id(child), _DEEPEST) for child in item.children.values()]
        height = 1 + max(below, default=0) if item.children or _is_plain(item.value) else _DEEPEST
        if height < _MOST_PACKED:
            levels[id(item)] = height
    return set(levels)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (set, frozenset)):
        return all(map(_is_plain, value))
    return not isinstance(value, Stored) and not (isinstance(value, str) and type(value) is not str)
