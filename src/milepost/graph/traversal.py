"""Walks over live objects, breadth first, in TensorFlow's order of node ids.

The children of an object are visited in its own order. The first visit gives an object its id and its path. Slot variables come
after all other objects: by the id of the optimizer, then by the slot name, then by the id of the variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from milepost.collector import collection_paused
from milepost.errors import MilepostError, UnsupportedError, UntrackableError
from milepost.graph import attach
from milepost.graph.adapter import Adapter, adapter_during, adapter_of_type_during
from milepost.graph.completeness import (
    SETTINGS,
    Untaken,
    left_out_of_accounts,
    lost_settings,
    omission_of,
    without_variables,
)
from milepost.graph.contract.operation import Operation
from milepost.graph.frameworks import import_adapters
from milepost.graph.keys import child_path, slot_path
from milepost.graph.live_graph import LiveGraph
from milepost.graph.omissions import Omission, Omitted
from milepost.graph.plain.places import holds_state, kind_of_plain_place
from milepost.graph.plain.values import PLAIN
from milepost.graph.remedies import cannot_be_read
from milepost.graph.saved.object_graph import Edge, SlotReference, new_edge
from milepost.graph.trees.places import (
    InPlace,
    Place,
    Tree,
    TreeNode,
    kind_of_place,
    place_of_tree,
    placed,
    places_held,
)
from milepost.graph.trees.structure import CONTAINERS

_TREES: Final = (TreeNode, Tree)
_OF_HOLDERS: Final = frozenset({"children", "skipped_by_tensorflow"})
"""Methods of adapters for holders. An adapter of leaves without children overrides none of them."""


class _Unfollowed(NamedTuple):
    """An edge that TensorFlow skips. It is followed last, so that only objects without another edge are skipped."""

    holder: int
    name: str
    child: Any
    adapter: Adapter


def live_children(operation: Operation, adapter: Adapter, obj: Any) -> Iterator[tuple[str, Any]]:
    """The trackable children of one object.

    Args:
        operation: The operation, which knows the values of places among them then.
        adapter: The adapter of the object in this operation.
        obj: The object.

    Raises:
        UntrackableError: The object raises an error when its children are read.
    """
    names: list[str] = []
    nodes: list[Any] = []
    try:
        children = adapter.children(obj) if "children" in adapter.overrides else ()
        for name, node, its_adapter in _taken(operation, obj, children, holds_state(obj)):
            if its_adapter is not None:
                names.append(name)
                nodes.append(node)
    except MilepostError:
        raise
    except Exception as error:
        raise cannot_be_read(obj, error, adapter) from error
    return zip(names, nodes, strict=True)


def _taken(
    operation: Operation, obj: Any, children: Iterable[tuple[str, Any]], is_state: bool
) -> Iterator[tuple[str, Any, Adapter | None]]:
    """The nodes in the graph for the children of an object. Each is the child itself or a place.

    Args:
        operation: The operation.
        obj: The object that holds the children.
        children: The children, each after the name of its edge.
        is_state: Whether plain values that the object holds are state.

    Yields:
        The name, the node and its adapter. The child itself and None if nothing saves it.
    """
    known, held = operation.adapters, operation.held
    places: dict[str, Place] | None = None
    for name, child in children:
        kind = type(child)
        adapter = known.get(kind)
        if adapter is not None:
            yield name, child, adapter if "tracks" not in adapter.overrides or adapter.tracks(child) else None
            continue
        kind_of_place = None
        # a value may be deferred for a None
        if is_state and not (child is None and attach.deferral.expects(obj, name)):
            kind_of_place = kind_of_plain_place(child)
        if kind_of_place is None:
            yield name, *_taken_otherwise(operation, obj, name, child)
            continue
        if places is None:
            places = places_held(obj)
        place = place_of_tree(held, obj, name, child, kind_of_place, places)
        yield name, place, known.get(kind_of_place) or adapter_of_type_during(operation, kind_of_place)


def _taken_otherwise(operation: Operation, obj: Any, name: str, child: Any) -> tuple[Any, Adapter | None]:
    """The same for a child that is no plain value, of a type that is not known."""
    kind = type(child)
    if kind is InPlace:
        child = child.value
        kind_of_child = kind_of_place(child)
        assert kind_of_child is not None, "only what has a place is in one"
        return place_of_tree(operation.held, obj, name, child, kind_of_child), adapter_of_type_during(
            operation, kind_of_child
        )
    adapter = adapter_of_type_during(operation, kind)
    if adapter is None or ("tracks" in adapter.overrides and not adapter.tracks(child)):
        return child, None
    may_be_tree = adapter.functional or kind in CONTAINERS or issubclass(kind, tuple)
    if not (may_be_tree or kind in PLAIN):
        operation.adapters[kind] = adapter
    if may_be_tree and not isinstance(obj, TreeNode):  # whose children already have places
        place = placed(operation, obj, name, child)
        if place is not child:
            return place, adapter_of_type_during(operation, type(place))
    return child, adapter


def reachable(root: Any) -> list[Any]:
    """All trackable objects that can be reached from ``root``, nearest first, without slot variables."""
    return walk(Operation(root), slots=False).objects


@collection_paused()
def walk(  # noqa: C901, PLR0915 - the inner loop of each save and restore, in which calls would cost time
    operation: Operation, *, slots: bool = True, omissions: bool = False
) -> LiveGraph:
    """Numbers all objects that can be reached from the root of an operation.

    Args:
        operation: The operation. It knows the values of all places then.
        slots: Whether to look for slot variables.
        omissions: Whether to look for what a checkpoint would leave out.

    Raises:
        UntrackableError: The root is not trackable.
        UnsupportedError: A slot variable is also an ordinary child, or has children.
        AdapterError: An object belongs to a framework whose installed version milepost cannot use.
    """
    import_adapters()  # looking up a known type would not import them
    graph = LiveGraph()
    root, attached = operation.root, operation.attached
    adapter = adapter_during(operation, root)
    if adapter is None:
        raise UntrackableError(
            "this object cannot be the root of a checkpoint",
            expected="a Checkpoint, a Module, a variable, a list or dict, or an object of a framework that is imported",
            found=f"an object of type {type(root).__name__}",
            remedy="pass it to a Checkpoint under a name, as in Checkpoint(value=...)",
        )
    objects, adapters, paths, edges = graph.objects, graph.adapters, graph.paths, graph.edges
    ids = {id(root): 0}
    objects.append(root)
    adapters.append(adapter)
    edges.append(())
    holders = [0]
    unfollowed: list[_Unfollowed] = []
    untaken: list[Untaken] = []
    lacking: list[tuple[int, Omission]] = []
    first_skipped = visited = 0
    while visited < len(holders) or unfollowed:  # both lists grow during the loop
        new = len(objects)
        if visited == len(holders):
            first_skipped = first_skipped or new
            holder, name, child, its_adapter = unfollowed.pop(0)
            target = ids.setdefault(id(child), new)
            if target == new:
                objects.append(child)
                adapters.append(its_adapter)
                edges.append(())
                paths.add(holder, [name])
                if not (its_adapter.leaf and its_adapter.overrides.isdisjoint(_OF_HOLDERS)):
                    holders.append(new)
            edges[holder] = [*edges[holder], Edge(name, target)]
            continue
        number = holders[visited]
        visited += 1
        obj, adapter = objects[number], adapters[number]
        names: list[str] = []
        targets: list[int] = []
        new_names: list[str] = []
        try:
            is_state = holds_state(obj)
            children: Any = adapter.children(obj) if "children" in adapter.overrides else ()
            skipped = adapter.skipped_by_tensorflow(obj) if "skipped_by_tensorflow" in adapter.overrides else ()
            if number == 0 and attached:
                of_attached = {name for name, _ in attached}
                children = [*(pair for pair in children if pair[0] not in of_attached), *attached]
            for name, child, child_adapter in _taken(operation, obj, children, is_state):
                if child_adapter is None:
                    if omissions and type(child) not in SETTINGS:
                        path = child_path(paths[number], name, is_root=number == 0)
                        untaken.append(Untaken(child, path, is_state, type(obj) in _TREES, adapter.searched))
                    continue
                if skipped and name in skipped:
                    unfollowed.append(_Unfollowed(number, name, child, child_adapter))
                    continue
                target = ids.setdefault(id(child), new)
                if target == new:
                    objects.append(child)
                    adapters.append(child_adapter)
                    edges.append(())
                    new_names.append(name)
                    if not (child_adapter.leaf and child_adapter.overrides.isdisjoint(_OF_HOLDERS)):
                        holders.append(new)
                    new += 1
                names.append(name)
                targets.append(target)
            paths.add(number, new_names)
        except UntrackableError as error:
            raise error.with_context(key=paths[number]) from error.__cause__
        except MilepostError:
            raise
        except Exception as error:
            raise cannot_be_read(obj, error, adapter).with_context(key=paths[number]) from error
        if omissions:
            if not is_state and (adapter.searched or hasattr(type(obj), "_now_numbers")):
                graph.omissions += lost_settings(obj, paths[number])
            if "unfinished" in adapter.overrides and not adapter.leaf:
                unfinished = adapter.unfinished(obj)
                if unfinished is not None:
                    lacking.append((number, unfinished))
        if names:
            edges[number] = list(map(new_edge, zip(names, targets, strict=True)))
    graph.first_slot = len(objects)
    graph.skipped_by_tensorflow = range(first_skipped or len(objects), len(objects))
    owners = [
        number
        for number, adapter in enumerate(adapters)
        if slots and "has_slots" in adapter.overrides and adapter.has_slots(objects[number])
    ]
    if owners:
        _walk_slots(operation, graph, owners, ids, omissions=omissions)
    if omissions:
        for number, (reason, remedy, doubtful, parts) in lacking:
            if not parts or any(id(part) not in ids for part in parts):
                kind = type(objects[number]).__name__
                graph.omissions.append(Omitted(paths[number], kind, reason, remedy, doubtful))
        graph.omissions += (omitted for each in untaken for omitted in omission_of(each, ids))
        if any("account" in adapter.overrides for adapter in set(adapters)):
            graph.omissions += left_out_of_accounts(graph, ids, slots=slots)
    return graph


def _walk_slots(
    operation: Operation, graph: LiveGraph, owners: Sequence[int], ids: dict[int, int], *, omissions: bool
) -> None:
    objects, adapters, paths = graph.objects, graph.adapters, graph.paths
    candidates = [number for number, adapter in enumerate(adapters) if adapter.leaf]
    for owner in owners:
        try:
            _walk_slots_of(operation, graph, owner, candidates, ids, omissions=omissions)
        except MilepostError:
            raise
        except Exception as error:
            raise cannot_be_read(objects[owner], error, adapters[owner]).with_context(key=paths[owner]) from error


def _walk_slots_of(
    operation: Operation,
    graph: LiveGraph,
    owner: int,
    candidates: Sequence[int],
    ids: dict[int, int],
    *,
    omissions: bool,
) -> None:
    objects, adapters, paths = graph.objects, graph.adapters, graph.paths
    adapter, optimizer = adapters[owner], objects[owner]
    references = graph.slots[owner] = []
    for name in adapter.slot_names(optimizer):
        for variable in candidates:
            slot = adapter.slot(optimizer, objects[variable], name)
            if slot is None:
                continue
            path = slot_path(paths[variable], paths[owner], name)
            slot_adapter = adapter_during(operation, slot)
            if slot_adapter is None:
                raise UntrackableError(
                    "a slot variable is not trackable",
                    key=path,
                    expected="a variable that can be saved, or None",
                    found=f"an object of type {type(slot).__name__}",
                    remedy="let get_slot() of the optimizer return a milepost.Variable or a variable of its framework",
                )
            known = ids.get(id(slot))
            if known is not None and adapter.slots_are_children:
                references.append(SlotReference(variable, name, known))
                continue
            has_children = "children" in slot_adapter.overrides and any(live_children(operation, slot_adapter, slot))
            if known is not None or has_children:
                raise UnsupportedError(
                    "a slot variable is also reachable as an ordinary child, or has children",
                    key=path,
                    remedy="let only get_slot() return it; wrap it in NoDependency if an attribute, list or dict holds it too",
                )
            ids[id(slot)] = len(objects)
            references.append(SlotReference(variable, name, len(objects)))
            objects.append(slot)
            adapters.append(slot_adapter)
            paths.add_whole(path)
            graph.edges.append(())
    if omissions and not references and adapter.slot_names(optimizer):
        graph.omissions.append(without_variables(optimizer, paths[owner]))
