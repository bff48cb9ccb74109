"""The tree of a file as items with names and keys.

Names are the keys of dicts and the positions in lists. The name of a module's tensor, such as ``l1.weight``, stands for two levels.
Keys are the file's own names, with ``/`` between levels: ``model/l1.weight``, ``optimizer/state/0/exp_avg``. A tensor that is the whole
file is the value of the root, and has the key that a checkpoint has for that. A member of a dict may have an empty name, and key.

Limits: a file may have 1,000,000 items, 100 levels, and 128 MiB of keys. An item that is in several places is counted in each: a few
bytes can describe very many items, if lists hold the same list many times. An item takes about 500 bytes of memory.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from milepost.coding.depth import DEEPEST
from milepost.errors import UnsupportedError
from milepost.foreign.opaque import Name, Opaque, holding
from milepost.foreign.pytorch.rebuilt import refusal, stream_of
from milepost.foreign.pytorch.tensors import TorchStorage, whole
from milepost.foreign.stored import Stored
from milepost.graph.keys import VARIABLE_VALUE, tensor_key

ROOT: Final = tensor_key("", VARIABLE_VALUE)
"""The key of what is the whole file."""
_WHOLE: Final = "(the whole file)"
_NO_NAME: Final = "''"
_MOST: Final = 1_000_000
_MOST_CHARACTERS: Final = 128 << 20
"""Characters in all keys of a file. A long name is repeated in the keys of everything below it."""
_SHOWN: Final = 200
_MOST_PACKED: Final = 60
"""Levels of an item that can be plain state; `milepost.plain_state.encoding` needs a few more for the same data."""
_ABSENT: Final = object()
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_LEAVES: Final = (
    *(Stored, int, float, complex, str, bytes, bytearray, set, frozenset),
    *(io.BytesIO, np.ndarray, np.generic, type(None)),
)


def called(key: str) -> str:
    """A key as users read it: that of the whole file has a name, and one without characters is in quotation marks.

    Example:
        >>> called("a"), called(""), called(ROOT)
        ('a', "''", '(the whole file)')
    """
    return _WHOLE if key == ROOT else key or _NO_NAME


class Item:
    """Something in a file that has a name.

    Attributes:
        key: Its key, which no other item has.
        value: A `Stored` tensor, a plain value, a dict or a list. `has_value` tells whether there is one.
        opaque: The object, if only running code could make it. If it holds tensors, or is a kind of list or dict, its contents are
            the children, and ``value`` is a dict of them.
        members: If the value is a dict or a list, the items of its members, in their order. They may be some levels down.
    """

    __slots__ = ("_children", "key", "members", "opaque", "value")

    def __init__(self, key: str, value: Any = _ABSENT) -> None:
        self.key = key
        self.value = value
        self.opaque: Opaque | None = None
        self.members: Sequence[Item] = ()
        self._children: dict[str, Item] | None = None

    @property
    def children(self) -> Mapping[str, Item]:
        """The items directly below this one, by name."""
        return _NOTHING if self._children is None else self._children

    def child(self, name: str, key: str) -> Item:
        """The child of this name. It is made if there is none."""
        if self._children is None:
            self._children = {}
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = Item(key)
        return child

    @property
    def has_value(self) -> bool:
        """Whether there is a value, and not only the first part of a longer name."""
        return self.value is not _ABSENT

    @property
    def content(self) -> Any:
        """The object, if only running code could make it, and otherwise the value."""
        return self.value if self.opaque is None else self.opaque

    @property
    def is_leaf(self) -> bool:
        """Whether this is a tensor, a plain value, or an object whose contents are not read."""
        return self.has_value and not isinstance(self.value, (Mapping, list, tuple))

    @property
    def is_unread(self) -> bool:
        """Whether this is an object whose contents are not read."""
        return isinstance(self.value, Opaque)


def items_of(tree: Any, *, dotted: bool, keys: Mapping[str, str] = _NOTHING) -> Item:
    """Makes the items of a tree.

    Args:
        tree: The tree.
        dotted: Whether names are paths with dots.
        keys: The keys of items that have other keys than their names, by the keys that they would have.

    Returns:
        The root.

    Raises:
        UnsupportedError: The tree has too many levels or items, contains itself, or is a single plain value.
    """
    return _Maker(tree, dotted=dotted, keys=keys).make()


def tensors_alone(tree: Any, *, dotted: bool) -> dict[str, Stored] | None:
    """The tensors of a tree that is a dict of tensors and of such dicts, by the keys that `items_of` gives them.

    To list them needs no items, which take several times as long to make.

    Args:
        tree: The tree.
        dotted: Whether names are paths with dots.

    Returns:
        The tensors. None if there is anything else in the tree, if keys may not be unique, or if the tree exceeds the limits.
    """
    tensors: dict[str, Stored] = {}
    pending: list[tuple[Any, str, int]] = [(tree, "", 0)]
    count = characters = 0
    while pending:
        level, prefix, depth = pending.pop()
        if type(level) not in (dict, OrderedDict) or not level or set(map(type, level)) != {str}:
            return None
        names = "".join(level)
        is_last = set(map(type, level.values())) == {Stored}
        if "/" in names and not (is_last and not depth):
            return None  # two paths may be the same text
        count += len(level) + (names.count(".") if dotted else 0)
        characters += len(names) + len(prefix) * len(level)
        if count > _MOST or characters > _MOST_CHARACTERS or depth + _most_dots(level, names, dotted=dotted) >= DEEPEST:
            return None
        if is_last:
            tensors.update(zip(map(prefix.__add__, level), level.values(), strict=True))
            continue
        for name, value in level.items():
            if type(value) is Stored:
                tensors[prefix + name] = value
            else:
                pending.append((value, f"{prefix}{name}/", depth + 1))
    return tensors


def are_keys(names: Sequence[str], *, dotted: bool) -> bool:
    """Whether `items_of` gives the tensors of a dict their names as keys, and the dict does not exceed its limits.

    Args:
        names: The names of the tensors, each once.
        dotted: Whether names are paths with dots.
    """
    joined = "".join(names)
    count = len(names) + (joined.count(".") if dotted else 0)
    is_few = bool(names) and count <= _MOST and len(joined) <= _MOST_CHARACTERS
    return is_few and _most_dots(names, joined, dotted=dotted) < DEEPEST


def _most_dots(names: Iterable[str], joined: str, *, dotted: bool) -> int:
    """How many dots a name has at most, which stand for levels."""
    return max(name.count(".") for name in names) if dotted and "." in joined else 0


class _Maker:
    def __init__(self, tree: Any, *, dotted: bool, keys: Mapping[str, str]) -> None:
        self._tree = tree
        self._keys = keys
        self._dotted = dotted
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._count = self._characters = 0
        self._opened: set[int] = set()
        self._with_tensors: set[int] | None = None

    def make(self) -> Item:
        root = Item("")
        self._set(root, self._tree)
        if root.is_leaf:
            _check_single(root)
            root.key = ROOT
            return root
        pending: list[tuple[Item, int, bool]] = [(root, 0, False)]
        while pending:
            item, depth, inside = pending.pop()
            inside = inside or item.opaque is not None
            self._spend(item.key, len(item.value), 0)
            listed: list[Item] = []
            for name, value in members(item.value):
                parts = levels(name, dotted=self._dotted)
                path = name if item is root else f"{item.key}/{name}"
                below = depth + len(parts)
                if below > DEEPEST and not inside:
                    raise UnsupportedError(
                        "the state has too many levels, or holds itself",
                        key=path[:_SHOWN],
                        expected=f"{DEEPEST} levels or less",
                        remedy="save a state of fewer levels, which does not hold itself",
                    )
                self._spend(path, len(parts) - 1, len(path))
                key = self._own_key(path)
                child = _place(item, parts, key)
                child.key = self._keys.get(key, key)
                self._set(child, value, too_deep=below > DEEPEST)
                listed.append(child)
                if not child.is_leaf:
                    pending.append((child, below, inside))
            item.members = listed
        return root

    def _spend(self, key: str, parts: int, characters: int) -> None:
        self._count += parts
        self._characters += characters
        if self._count > _MOST or self._characters > _MOST_CHARACTERS:
            raise _too_many(key, self._count, self._characters)

    def _own_key(self, base: str) -> str:
        key = base
        while key in self._taken:  # 0 and "0", or "a/b" and "b" in "a"
            self._numbers[base] = number = self._numbers.get(base, 1) + 1
            key = f"{base}_{number}"
        self._taken.add(key)
        return key

    def _set(self, item: Item, value: Any, *, too_deep: bool = False) -> None:
        """Sets the value of an item, and the opaque object if it is one."""
        if isinstance(value, TorchStorage):
            value = whole(value)
        elif isinstance(value, Name):
            value = Opaque(value)
        elif isinstance(value, Opaque):
            value = stream_of(value) or value
        elif isinstance(value, (set, frozenset)) and any(isinstance(each, (Stored, Opaque, Name)) for each in value):
            members, value = value, Opaque(Name("builtins", type(value).__name__))
            value.items = list(members)
        elif too_deep and isinstance(value, (Mapping, list, tuple)):
            value = Opaque(Name("builtins", type(value).__name__), sealed=True)
        if isinstance(value, Opaque):
            item.opaque = value
            value = self._held(value) if not too_deep and self._is_level(value) else value
        elif not isinstance(value, (Mapping, list, tuple, *_LEAVES)):
            raise UnsupportedError(
                "the file holds an object that is not a value",
                key=item.key,
                expected="tensors, numbers, text, and lists, tuples, dicts and sets of them",
                found=f"an object of type {type(value).__name__}",
                remedy="save the state without it",
            )
        item.value = value

    def _is_level(self, value: Opaque) -> bool:
        """Whether the contents of an object become its children. This happens only once, because objects may hold each other."""
        if value.sealed or (id(value) in self._opened and not value.is_module):
            return False
        if not value.is_container:
            if self._with_tensors is None:
                self._with_tensors = holding(self._tree, (Stored, TorchStorage))
            if id(value) not in self._with_tensors:
                return False
        self._opened.add(id(value))
        return True

    def _held(self, value: Opaque) -> dict[str, Any]:
        level: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        for name, member in value.members(lambda prefix: self._spend(prefix, 0, len(prefix))):
            text = base = _text(name, len(level))
            while text in level:
                numbers[base] = number = numbers.get(base, 1) + 1
                text = f"{base}_{number}"
            level[text] = member
            if len(level) > _MOST:
                raise _too_many("", len(level), 0)
        return level


def _check_single(item: Item) -> None:
    """Checks that a file with one value, which has no name, holds a tensor."""
    if item.opaque is not None:
        raise refusal(item.opaque)
    if not isinstance(item.value, Stored):
        raise UnsupportedError(
            "the file holds a single value without a name",
            expected="a tensor, or a dict of tensors, as state_dict() returns",
            found=f"an object of type {type(item.value).__name__}",
            remedy="save it in a dict",
        )


def _too_many(key: str, count: int, characters: int) -> UnsupportedError:
    return UnsupportedError(
        "the state has too many parts, or their names are too long",
        key=key[:_SHOWN],
        expected=f"{_MOST} parts or less, and {_MOST_CHARACTERS} characters of names",
        found=f"{count} parts, and {characters} characters, before the end",
        remedy="save long lists as tensors",
    )


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """The members of a dict, list or tuple, with their names as text."""
    if isinstance(value, Mapping):
        return ((_text(name, position), each) for position, (name, each) in enumerate(value.items()))
    return ((str(index), each) for index, each in enumerate(value))


def _text(name: Any, position: int) -> str:
    """A name as text. For a key that is a tensor, this is its position."""
    if type(name) is str:
        return name
    return str(position) if isinstance(name, (Stored, TorchStorage)) else f"{name!s:.200}"


def levels(name: str, *, dotted: bool) -> list[str]:
    """The levels that a name stands for."""
    parts = name.split(".") if dotted and "." in name else [name]
    return parts if all(parts) and len(parts) < DEEPEST else [name]


def _place(item: Item, parts: Sequence[str], key: str) -> Item:
    """The item for a name, which may be several levels down."""
    for part in parts[:-1]:
        item = item.child(part, key)
    last = parts[-1]
    existing = item.children.get(last)
    if existing is not None and existing.has_value:  # a different key that is the same text
        last = key
    return item.child(last, key)


def walked(item: Item) -> Iterator[Item]:
    """An item and all items below it."""
    pending = [item]
    while pending:
        current = pending.pop()
        yield current
        pending += current.children.values()


def packable(root: Item) -> set[int]:
    """The identities of all items that can be plain state: without tensors and names of types, and of few enough levels."""
    order = [root]
    for item in order:
        order += item.children.values()
    levels: dict[int, int] = {}
    for item in reversed(order):  # children come before what holds them
        if item.opaque is not None:
            continue
        below = [levels.get(id(child), DEEPEST) for child in item.children.values()]
        height = 1 + max(below, default=0) if item.children or _is_plain(item.value) else DEEPEST
        if height < _MOST_PACKED:
            levels[id(item)] = height
    return set(levels)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (set, frozenset)):
        return all(map(_is_plain, value))
    return not isinstance(value, (Stored, Opaque, Name, TorchStorage)) and not (
        isinstance(value, str) and type(value) is not str
    )
