"""The tree of a checkpoint's objects and tensors, as rows from top to bottom."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from milepost.collector import collection_paused
from milepost.graph.keys import ATTRIBUTES, VARIABLE_VALUE, is_value
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.tools.drawing.object_tree import is_optimizer
from milepost.tools.drawing.picture import OBJECT, OPTIMIZER, VARIABLE, slots_of
from milepost.tools.drawing.picture import SLOT as SLOT_VARIABLE
from milepost.tools.own_names import own_name_of
from milepost.tools.tree import MARKER, Branch, in_order, tree_of
from milepost.tools.values.tensors import Row

RECORD: Final = "record"
"""The role of what is no value of the program: the object graph, and the metadata."""
_SUFFIX: Final = ATTRIBUTES + VARIABLE_VALUE
_MOST_OTHERS: Final = 20_000
"""Other names that are listed of all objects together."""
_MOST_OTHERS_EACH: Final = 4
_MOST_OWN: Final = 10_000
"""Own names that are listed."""
_MOST_NAMES: Final = 100
"""Names in the path of another name."""


class OutlineRow(NamedTuple):
    """An object or a tensor.

    Attributes:
        depth: How many rows it is below; 0 at the top.
        name: Its name in the object above it.
        role: A role of `milepost.tools.drawing.picture`, or `RECORD`.
        tensor: The position of its tensor; None if it has none.
        key: The key of the tensor, if that is not made of the names.
        others: Other names that lead to the object.
        own_name: What the layer or variable is called itself; empty if that is not known, or if the names that lead to it say as much.
    """

    depth: int
    name: str
    role: str
    tensor: int | None
    key: str | None
    others: tuple[str, ...]
    own_name: str = ""


@dataclass(slots=True)
class Outline:
    """The tree of a checkpoint.

    Attributes:
        rows: Every object and tensor, each below the one that holds it.
        separator: What is between the names in a key.
        suffix: What ends a key.
        objects: The number of objects of the object graph; None without a graph.
    """

    rows: list[OutlineRow]
    separator: str
    suffix: str
    objects: int | None


@collection_paused()
def outline_of(
    rows: Sequence[Row], graph: ObjectGraph | None, own_names: Mapping[str, str] = MappingProxyType({})
) -> Outline:
    """Makes the tree of a checkpoint.

    Args:
        rows: Its tensors.
        graph: Its object graph, if it has one.
        own_names: Without a graph, what layers are called themselves, by path.
    """
    root = tree_of(rows)
    position = {row.key: index for index, row in enumerate(rows)}
    separator, suffix = ("/", _SUFFIX) if graph is not None else ("." if _has_dots(rows) else "/", "")
    roles: dict[int, str] = {}
    others: dict[int, list[str]] = {}
    own_names_by_branch = _branches(root, own_names)
    if graph is not None:
        _add_objects(root, graph, roles, others, own_names_by_branch)
    listed = [*_listed(root, position, roles, others, own_names_by_branch, separator, suffix)]
    return Outline(listed, separator, suffix, None if graph is None else len(graph.nodes))


def _listed(
    root: Branch,
    position: dict[str, int],
    roles: dict[int, str],
    others: dict[int, list[str]],
    own_names_by_branch: dict[int, str],
    separator: str,
    suffix: str,
) -> Iterator[OutlineRow]:
    """Every branch below the root, after the one it is below."""
    path: list[str] = []
    order: dict[str, Any] = {}
    stack = [iter(in_order(root, order))]
    while stack:
        pair = next(stack[-1], None)
        if pair is None:
            stack.pop()
            if path:
                path.pop()
            continue
        name, branch = pair
        path.append(name)
        tensor = key = None
        role = roles.get(id(branch))
        if branch.row is not None:
            key = branch.row.key
            tensor = position[key]
            if not is_value(key):
                role = RECORD
        if role != RECORD and name.startswith(MARKER):
            role = SLOT_VARIABLE
        if role is None:
            role = OBJECT if branch.row is None else VARIABLE
        if key is not None and separator.join(path) + suffix == key:
            key = None
        names = others.get(id(branch))
        others_of_it = () if names is None else tuple(names)
        yield OutlineRow(len(path) - 1, name, role, tensor, key, others_of_it, own_names_by_branch.get(id(branch), ""))
        if branch.below:
            stack.append(iter(in_order(branch, order)))
        else:
            path.pop()


def _has_dots(rows: Sequence[Row]) -> bool:
    return sum("." in row.key for row in rows) * 2 > sum("/" in row.key for row in rows) * 2


def _branches(root: Branch, own_names: Mapping[str, str]) -> dict[int, str]:
    """Own names by path as own names by branch."""
    own_names_by_branch = {}
    for path, own_name in own_names.items():
        branch: Branch | None = root
        for step in path.split("/"):
            branch = None if branch is None else branch.below.get(step)
        if branch is not None:
            own_names_by_branch[id(branch)] = own_name
    return own_names_by_branch


def _add_objects(
    root: Branch,
    graph: ObjectGraph,
    roles: dict[int, str],
    others: dict[int, list[str]],
    own_names_by_branch: dict[int, str],
) -> None:
    """Notes the roles of objects, their other names and their own ones, and adds the objects that hold no tensor."""
    slots = slots_of(graph)
    branches: dict[int, Branch] = {0: root}
    above: dict[int, tuple[int, str]] = {}
    room = _MOST_OTHERS
    queue = deque([0])
    while queue:
        number = queue.popleft()
        node, branch = graph.nodes[number], branches[number]
        roles[id(branch)] = (
            SLOT_VARIABLE
            if number in slots
            else OPTIMIZER
            if is_optimizer(node)
            else VARIABLE
            if node.values
            else OBJECT
        )
        has_one = bool(node.values) and bool(node.values[0].full_name) and len(own_names_by_branch) < _MOST_OWN
        if has_one and (own_name := own_name_of(node, _path(above, number))):
            own_names_by_branch[id(branch)] = own_name
        for name, child in node.children:
            if child not in branches:
                branches[child] = branch.below.setdefault(name, Branch())
                above[child] = number, name
                queue.append(child)
                continue
            known = others.setdefault(id(branches[child]), [])
            if len(known) < _MOST_OTHERS_EACH and room:
                room -= 1
                known.append("/".join([*_path(above, number), name]))


def _path(above: dict[int, tuple[int, str]], number: int) -> list[str]:
    """The names that lead to an object; of a very long path the last ones."""
    names: list[str] = []
    while number in above:
        if len(names) == _MOST_NAMES:
            names.append("...")
            break
        number, name = above[number]
        names.append(name)
    return names[::-1]
