"""The tensors of a checkpoint as a tree of names, some levels of which may be folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from milepost.collector import collection_paused
from milepost.graph.keys import SLOT, is_value
from milepost.tools.values.tensors import Row, steps_of

MARKER: Final = SLOT.removeprefix("/")
"""The beginning of the name of a slot variable below its variable."""
_DIGITS: Final = re.compile(r"(\d{1,18})")


@dataclass(slots=True)
class Branch:
    """A name, what it holds, and everything below it.

    Attributes:
        row: The tensor of this name, or None.
        below: The branches below it, by name.
        count: The number of tensors at it and below it.
        size: Their bytes.
    """

    row: Row | None = None
    below: dict[str, Branch] = field(default_factory=dict)
    count: int = 0
    size: int = 0


@dataclass(slots=True)
class Line:
    """A line of a printed tree.

    Attributes:
        depth: How many names are above it.
        name: The name.
        row: The tensor, or None.
        count: The number of tensors that the line stands for.
        size: Their bytes.
        is_folded: Whether the line stands for everything below it.
        own_name: What the object is called itself; empty if that is not known, or the same.
    """

    depth: int
    name: str
    row: Row | None
    count: int
    size: int
    is_folded: bool
    own_name: str = ""


@collection_paused()
def tree_of(rows: Iterable[Row]) -> Branch:
    """Makes the tree of some tensors."""
    root = Branch()
    made: list[tuple[Branch, Branch]] = []
    for row in rows:
        branch = root
        for step in steps_of(row.key):
            below = branch.below.get(step)
            if below is None:
                below = branch.below[step] = Branch()
                made.append((branch, below))
            branch = below
        branch.count += 1
        branch.size += row.size
        branch.row = row
    for above, branch in reversed(made):  # each was made after the one above it
        above.count += branch.count
        above.size += branch.size
    return root


def in_order(branch: Branch, order: dict[str, Any]) -> Iterable[tuple[str, Branch]]:
    """The branches below a branch, in natural order: 2 comes before 10. Slot variables, and records of the checkpoint, are the last.

    Args:
        branch: The branch.
        order: By what names are sorted, as far as that is known. Many names occur many times.
    """
    below = branch.below
    if len(below) < 2:
        return below.items()
    for name in below:
        if name not in order:
            order[name] = _natural(name)
    return [(name, below[name]) for name in sorted(below, key=order.__getitem__)]


def _natural(name: str) -> tuple[bool, list[tuple[int, str]]]:
    parts = [(int(part), "") if position % 2 else (0, part) for position, part in enumerate(_DIGITS.split(name))]
    return name.startswith(MARKER) or not is_value(name), parts


def folded(
    root: Branch, depth: int | None, most: int | None, own_names: Mapping[str, str] = MappingProxyType({})
) -> list[Line]:
    """The lines of a tree.

    Args:
        root: The tree.
        depth: How many levels to show; by default as many as fit.
        most: How many lines may be used if there is no depth; by default any number.
        own_names: What objects are called themselves, by path.
    """
    if depth is None and most is not None:
        depth = _depth_that_fits(root, most)
    return list(_lines(root, depth, own_names))


def _lines(root: Branch, depth: int | None, own_names: Mapping[str, str]) -> Iterator[Line]:
    order: dict[str, Any] = {}
    stack = [(iter(in_order(root, order)), "")]
    while stack:
        branches, above = stack[-1]
        level = len(stack) - 1
        pair = next(branches, None)
        if pair is None:
            stack.pop()
            continue
        name, branch = pair
        is_folded = bool(branch.below) and depth is not None and level + 1 >= max(1, depth)
        path = f"{above}{name}/" if own_names else ""
        yield Line(
            level,
            name,
            None if is_folded else branch.row,
            branch.count if is_folded else int(branch.row is not None),
            branch.size if is_folded or branch.row is None else branch.row.size,
            is_folded,
            own_names.get(path[:-1], ""),
        )
        if branch.below and not is_folded:
            stack.append((iter(in_order(branch, order)), path))


def _depth_that_fits(root: Branch, most: int) -> int | None:
    """The greatest number of levels that fit. None if all do."""
    level, total, depth = list(root.below.values()), 0, 0
    while level:
        total += len(level)
        if total > most:
            return max(1, depth)
        depth += 1
        level = [below for branch in level for below in branch.below.values()]
    return None
