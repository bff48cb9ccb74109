"""Renames values in the contents of a file of another library: nested dicts, lists, tensors and plain values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from milepost.foreign.items import members
from milepost.foreign.pytorch.rebuilt import METADATA
from milepost.graph.saved.renaming import Path, Rename, moves, same_name

_CONTAINERS: Final = (Mapping, list, tuple)


def renamed(tree: Any, rename: Rename, *, dotted: bool = False) -> tuple[Any, dict[str, str], list[str]]:
    """The contents of a file with other names.

    Args:
        tree: The contents.
        rename: The new name of each value. Names are those of keys: ``model/l1.weight``.
        dotted: Whether ``.`` in a name separates levels, as ``/`` does.

    Returns:
        The contents under their new names; the old name of each renamed value, by new name; and the names of the values left out.

    Raises:
        UnsupportedError: Two values would have the same name.
    """
    if not isinstance(tree, _CONTAINERS):
        return tree, {}, []
    targets = {path: _target(path, rename) for path, _ in leaves(tree)}
    all_moves = moves(targets)
    if not all_moves:
        return tree, {}, []
    if dotted:
        _refuse_same_names(targets)
    rest, contents = without(tree, [move.old for move in all_moves]), _Contents(tree)
    names: dict[str, str] = {}
    for move in all_moves:
        if move.new is not None:
            moved = contents.at(move.old)
            put(rest, move.new, moved)
            for path, _ in leaves(moved):
                names["/".join((*move.new, *path))] = "/".join((*move.old, *path))
    for move in all_moves:
        drop_empty(rest, move.old[:-1])
    _note_versions(tree, rest, targets)
    return rest, names, ["/".join(path) for path, target in targets.items() if target is None]


def _note_versions(old: Any, new: _Dict, targets: Mapping[Path, Path | None]) -> None:
    """Notes the versions of modules, which PyTorch has with a state dict, where their values are now, under their new names."""
    holders = {path[:-1] for path, target in targets.items() if target not in (None, path)}
    contents, moved = _Contents(old), _Contents(new)
    versions = {
        path: noted for path in holders if isinstance(noted := getattr(contents.at(path), METADATA, None), Mapping)
    }
    for path, target in targets.items() if versions else ():
        noted = versions.get(path[:-1])
        if noted is None or target is None or target == path:
            continue
        module, target_module = path[-1].split("."), target[-1].split(".")
        container = moved.at(target[:-1])
        if not isinstance(container, _Dict):
            continue
        present = vars(container).setdefault(METADATA, {})
        while module and target_module and module.pop() == target_module.pop():
            if ".".join(module) in noted:
                present.setdefault(".".join(target_module), noted[".".join(module)])


def _refuse_same_names(targets: Mapping[Path, Path | None]) -> None:
    """Refuses two values whose new names differ only in the character that separates levels."""
    taken: dict[str, Path] = {}
    for path, target in targets.items():
        if target is not None:
            other = taken.setdefault("/".join(target).replace(".", "/"), path)
            if other != path and (target != path or targets[other] != other):
                raise same_name("/".join(path), "/".join(other))


def _target(path: Path, rename: Rename) -> Path | None:
    new = rename("/".join(path))
    return None if new is None else tuple(new.split("/"))


def leaves(tree: Any) -> Iterator[tuple[Path, Any]]:
    """What is in nested containers and is none, each with its path."""
    pending: list[tuple[Path, Any]] = [((), tree)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, _CONTAINERS):
            pending += [((*path, name), each) for name, each in members(value)]
        else:
            yield path, value


class _Contents:
    """Finds parts of nested containers by their paths."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._members: dict[int, dict[str, Any]] = {}

    def at(self, path: Path) -> Any:
        value = self._tree
        for name in path:
            if id(value) not in self._members:
                self._members[id(value)] = dict(members(value))
            value = self._members[id(value)][name]
        return value


class _Dict(dict[Any, Any]):
    """A dict that can have attributes, as the state of a module of PyTorch has.

    Attributes:
        has_others: Whether a key may be no text. No such key is added later.
    """

    has_others = False


def _copied(tree: Any) -> _Dict:
    """A container as a dict with the container's own keys."""
    copy = _Dict(tree.items() if isinstance(tree, Mapping) else ((name, each) for name, each in members(tree)))
    copy.has_others = any(type(key) is not str for key in copy)
    if hasattr(tree, METADATA):
        setattr(copy, METADATA, getattr(tree, METADATA))
    return copy


def without(tree: Any, paths: Collection[Path]) -> _Dict:
    """A copy without some parts. Containers that lose nothing are not copied."""
    copy = _copied(tree)
    copies: dict[Path, _Dict] = {(): copy}
    for path in paths:
        for depth in range(1, len(path)):
            holder, name = copies[path[: depth - 1]], path[depth - 1]
            if path[:depth] not in copies:
                key = _key(holder, name)
                copies[path[:depth]] = holder[key] = _copied(holder[key])
        holder = copies[path[:-1]]
        del holder[_key(holder, path[-1])]
    return copy


def drop_empty(tree: _Dict, path: Path) -> None:
    """Removes a dict that has lost all its members, and the dicts above it that hold nothing else."""
    holders = [tree]
    for name in path:
        below = holders[-1].get(_key(holders[-1], name))
        if not isinstance(below, _Dict):
            return
        holders.append(below)
    for name, holder, below in zip(reversed(path), reversed(holders[:-1]), reversed(holders[1:]), strict=True):
        if below:
            return
        del holder[_key(holder, name)]


def _key(tree: _Dict, name: str) -> Any:
    """The key whose text is this name: the name itself, or for example a number."""
    if name in tree or not tree.has_others:  # many names are looked for in one dict
        return name
    return next((key for (text, _), key in zip(members(tree), tree, strict=True) if text == name), name)


def put(tree: _Dict, path: Path, value: Any) -> None:
    """Puts a value or a container at a path of a copy that `without` has made. Missing dicts are made.

    Raises:
        UnsupportedError: There is a value.
    """
    pending = [(tree, path, value)]
    while pending:
        tree, path, value = pending.pop()
        for depth, name in enumerate(path[:-1], 1):
            below = tree.get(_key(tree, name), _Dict())
            if not isinstance(below, _CONTAINERS):
                raise same_name("/".join(path[:depth]))
            tree[_key(tree, name)] = below = below if isinstance(below, _Dict) else _copied(below)
            tree = below
        key = _key(tree, path[-1])
        if key not in tree:
            tree[key] = value
            continue
        if not isinstance(value, _CONTAINERS) or not isinstance(tree[key], _CONTAINERS):
            raise same_name("/".join(path))
        tree[key] = _copied(tree[key])
        pending += [(tree[key], (name,), each) for name, each in members(value)]
