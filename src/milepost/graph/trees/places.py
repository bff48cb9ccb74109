"""Places of values that never change, in trees of containers that are not changed either.

In programs without side effects, a state is a value: a step makes a new tree of arrays from the old one. The identity of an
array lasts for one step, and two places with the same array may have different arrays after the next step. So milepost saves
and restores *places* instead of arrays. A place is an attribute of an object, such as a `Module`, and the path from there to the
array. It lasts as long as the object.

A restore builds new containers from the array up to that object, and assigns the new tree to the attribute. The old tree does
not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from milepost.facts import Fact, reference_to
from milepost.forks import ForkableLock
from milepost.graph.adapter import adapter_during, adapter_of_type, registry
from milepost.graph.numbers import NUMBERS
from milepost.graph.text import TEXTS
from milepost.graph.trees.structure import has_no_end, is_container, is_functional, members, with_members

if TYPE_CHECKING:
    from milepost.graph.contract.operation import Operation

_Place = TypeVar("_Place", bound="Place")
_ALWAYS_COMPARED: Final = 64
"""Containers down to this level are compared with those above them. Below it, only at levels that are powers of two."""


class Place:
    """A place that holds a value of a tree. The value that is there now belongs to the operation that looks at it
    (`milepost.graph.contract.operation.Operation.held`).

    Attributes:
        parent: The place of the container that holds the value. None for a whole tree, which an object holds.
        key: The key or position in the container. For a whole tree, the name of the edge from the object.
        holder: For a whole tree, a function that returns the object that holds it, or None if that no longer exists.
        restored: The number of the newest restore that gave it a value; 0 if none did (`milepost.deferred.identity`).
    """

    __slots__ = ("__weakref__", "holder", "key", "parent", "restored")

    def __init__(self, parent: TreeNode | None, key: Any, holder: Callable[[], Any] | None = None) -> None:
        self.parent = parent
        self.key = key
        self.holder = holder
        self.restored = 0

    @property
    def root(self) -> Place:
        """The place of the whole tree."""
        place = self
        while place.parent is not None:
            place = place.parent
        return place

    def __repr__(self) -> str:
        keys = []
        place: Place | None = self
        while place is not None:
            keys.append(str(place.key))
            place = place.parent
        return f"<place of {'/'.join(reversed(keys))}>"


class InPlace:
    """A child that an adapter wants to be saved as a place, although it is not part of a tree (`kind_of_place` names its kind).

    Args:
        value: The child.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Leaf(Place):
    """The place of an array."""

    __slots__ = ()


class CheckedLeaf(Place):
    """The place of a number, of text, or of another value that may refuse a saved value."""

    __slots__ = ()


KindOfPlace = Callable[[Any], "type[Place] | None"]
"""Tells the kind of place of an object of one type."""


def kind_of_place(value: Any) -> type[Place] | None:
    """The kind of place for a member of a tree. None if the member is not a value of the tree, or holds nothing."""
    kind = type(value)
    return (registry.kinds.get(kind) or _find_out(kind))(value)


def _find_out(kind: type) -> KindOfPlace:
    known: dict[type, KindOfPlace] = registry.kinds  # an adapter that another thread registers now makes another table
    function = known[kind] = _told_by_type(kind)
    return function


def _told_by_type(kind: type) -> KindOfPlace:
    """The function that tells the kind of place for objects of exactly this type."""
    if is_container(kind):
        return lambda value: TreeNode if value else None
    if kind in NUMBERS or kind in TEXTS:
        return lambda _: CheckedLeaf
    adapter = adapter_of_type(kind)
    if adapter is None or not (adapter.functional or issubclass(kind, (np.ndarray, np.generic))):
        return lambda _: None
    function: KindOfPlace = _of_array
    if adapter.functional:
        function = _of_functional_array if adapter.leaf else lambda _: TreeNode
    if "tracks" not in adapter.overrides:
        return function
    tracks = adapter.tracks
    return lambda value: function(value) if tracks(value) else None


def _of_array(array: Any) -> type[Place]:
    return Leaf if array.shape and not array.dtype.hasobject else CheckedLeaf


def _of_functional_array(array: Any) -> type[Place]:
    # NumPy has no type for some elements, such as keys of random number generators.
    return Leaf if array.shape and isinstance(array.dtype, np.dtype) else CheckedLeaf


class TreeNode(Place):
    """The place of a container."""

    __slots__ = ("_below", "_depth")

    _kind_below = staticmethod(kind_of_place)
    """The kind of place for a member."""

    def __init__(self, parent: TreeNode | None, key: Any, holder: Callable[[], Any] | None = None) -> None:
        super().__init__(parent, key, holder)
        self._below: dict[Any, Place] = {}
        self._depth: int = parent._depth + 1 if parent is not None else 0

    def children(self, held: dict[Place, Any]) -> list[tuple[str, Any]]:
        """The places of its members. Members that are not values of the tree are returned themselves.

        Args:
            held: The values of places in this operation. It has that of this place, and gets those of the members.
        """
        container = held[self]
        if self._is_in_itself(held):
            raise has_no_end()
        pairs: list[tuple[str, Any]] = []
        below, kind_below = self._below, self._kind_below
        for names, key, child in members(container):
            kind = kind_below(child)
            if kind is not None:
                place = below.get(key)
                if place is None:
                    place = below.setdefault(key, kind(self, key))  # another thread may have made it meanwhile
                if type(place) is not kind:
                    place = _exchanged(below, key, kind(self, key))
                held[place] = child
                child = place
            if len(names) == 1:  # as nearly always
                pairs.append((names[0], child))
            else:
                pairs += [(name, child) for name in names]
        return pairs

    def _is_in_itself(self, held: Mapping[Place, Any]) -> bool:
        """Whether its container is one of those above it. In a tree that contains itself, this is true at some level."""
        if self._depth > _ALWAYS_COMPARED and self._depth & (self._depth - 1):
            return False
        container, above = held[self], self.parent
        while above is not None and held.get(above) is not container:
            above = above.parent
        return above is not None

    def nodes(self) -> list[TreeNode]:
        """Its own place, and those of all containers in it."""
        tree_nodes: list[TreeNode] = [self]
        for node in tree_nodes:
            tree_nodes += [place for place in list(node._below.values()) if isinstance(place, TreeNode)]
        return tree_nodes

    def others(self, container: Any, successors: Mapping[int, Any]) -> dict[Any, Any]:
        """Successors of members of its container that are not values of the tree."""
        return {
            key: successors[id(child)]
            for _, key, child in members(container)
            if id(child) in successors and self._kind_below(child) is None
        }


class Tree:
    """Holds one tree that no object holds. It represents the tree itself, so it adds no name to paths.

    Args:
        value: The tree.
    """

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


_roots: Final[Fact[dict[str, Place]]] = Fact()
"""By object, the places of the whole trees that it holds, by name."""
_exchanging: Final = ForkableLock()


def _exchanged(places: dict[Any, Place], key: Any, new: _Place) -> Place:
    """The place of a value that is of another kind than before: a new one, or the one that another thread has made meanwhile."""
    with _exchanging:
        present = places.get(key)
        if type(present) is not type(new):
            present = places[key] = new
        return present


def placed(operation: Operation, holder: Any, name: str, child: Any) -> Any:
    """The place of a child of an object. A child that is not a tree is returned itself.

    Args:
        operation: The operation, which knows the value of the place then.
        holder: The object that holds the child, or will hold it.
        name: The name of the edge.
        child: The child.
    """
    if isinstance(child, Place) or not is_functional(child):
        return child
    kind = kind_of_place(child)
    return child if kind is None else place_of_tree(operation.held, holder, name, child, kind)


def places_held(holder: Any) -> dict[str, Place]:
    """The places of the whole trees that an object holds, by name."""
    places = _roots.get(holder)
    if places is None:
        with _exchanging:  # another thread may have made it meanwhile
            places = _roots.get(holder)
            if places is None:
                places = {}
                _roots.keep(holder, places)
    return places


def place_of_tree(
    held: dict[Place, Any],
    holder: Any,
    name: str,
    tree: Any,
    kind: type[Place],
    places: dict[str, Place] | None = None,
) -> Place:
    """The place of a whole tree; see `placed`.

    Args:
        held: The values of places in this operation, which gets that of this place.
        holder: As for `placed`.
        name: As for `placed`.
        tree: The tree.
        kind: The kind of its place.
        places: What `places_held` returned for the object, if many of its children are asked for.
    """
    if places is None:
        places = places_held(holder)
    place = places.get(name)
    if place is None:
        place = places.setdefault(name, kind(None, name, reference_to(holder)))
    if type(place) is not kind:
        place = _exchanged(places, name, kind(None, name, reference_to(holder)))
    held[place] = tree
    return place


def nodes_of_former_tree(holder: Any, name: str) -> list[TreeNode]:
    """The places of all containers of the present tree of an object under a name."""
    place = (_roots.get(holder) or {}).get(name)
    return place.nodes() if isinstance(place, TreeNode) else []


def is_final(obj: Tree | TreeNode) -> bool:
    """Whether this is a `Tree` or a place in one, which never gets more members."""
    if isinstance(obj, Tree):
        return True
    holder = obj.root.holder
    return holder is not None and isinstance(holder(), Tree)


def rebuild(held: dict[Place, Any], holders: Sequence[Any], successors: dict[int, Any]) -> list[Place]:
    """Builds new trees. Only the values of places change.

    Args:
        held: The values of places in this operation. It has the new ones then.
        holders: All objects of the restore, containers before their members.
        successors: Successors by the identity of the object that each replaces. Those of places are removed.

    Returns:
        The places of the new trees.
    """
    changes: dict[TreeNode, dict[Any, Any]] = {}
    roots: dict[Place, None] = {}

    def change(place: Place, value: Any) -> None:
        held[place] = value
        if place.parent is None:
            roots[place] = None
        else:
            changes.setdefault(place.parent, {})[place.key] = value

    for obj in reversed(holders):
        if not isinstance(obj, Place):
            continue
        if isinstance(obj, TreeNode):
            changed = {**changes.pop(obj, {}), **(obj.others(held[obj], successors) if successors else {})}
            if changed:
                change(obj, with_members(held[obj], changed))
        elif id(obj) in successors:
            change(obj, successors.pop(id(obj)))
    while changes:  # above the objects of the restore
        node, changed = changes.popitem()
        change(node, with_members(held[node], changed))
    return list(roots)


def put(operation: Operation, trees: Sequence[Place]) -> None:
    """Assigns new trees to the objects that hold them, except one that no object holds yet (`Operation.coming`).

    Each object gets all of its trees in one call.
    """
    holders: dict[int, Any] = {}
    changes: dict[int, dict[str, Any]] = {}
    for place in trees:
        holder = place.holder() if place is not operation.coming and place.holder is not None else None
        if holder is None:
            continue
        identity = id(holder)
        if identity not in holders:
            holders[identity] = holder
            changes[identity] = {}
        changes[identity][place.key] = operation.held[place]
    for identity, holder in holders.items():
        adapter = adapter_during(operation, holder)
        if adapter is not None:
            adapter.replace(holder, changes[identity])
