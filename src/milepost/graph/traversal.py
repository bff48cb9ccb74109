"""Walks over live objects, breadth first, in TensorFlow's order of node ids.

Children come in each object's own order and the first visit gives an object its id and its path; slot variables come
after all others: for each optimizer in id order, for each of its slot names, for each variable in id order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from milepost.errors import MilepostError, UnsupportedError, UntrackableError
from milepost.graph import attach
from milepost.graph.adapter import Adapter, adapter_of, adapter_of_type
from milepost.graph.completeness import (
    SETTINGS,
    Untaken,
    changed_since,
    left_out_of_accounts,
    omission_of,
    plain_beside_arrays,
    uncalled,
    without_variables,
)
from milepost.graph.frameworks import import_adapters
from milepost.graph.keys import child_path, slot_path
from milepost.graph.live_graph import LiveGraph
from milepost.graph.object_graph import Edge, SlotReference
from milepost.graph.omissions import Omitted
from milepost.graph.plain.places import holds_state, plain_place
from milepost.graph.remedies import cannot_be_read
from milepost.graph.trees.places import Node, Place, Tree, placed

_NO_EDGES: Final[list[Edge]] = []
_TREES: Final = (Node, Tree)


class _Unfollowed(NamedTuple):
    """An edge that TensorFlow skips; followed last, so that objects are skipped only if no other edge leads to them."""

    holder: int
    name: str
    child: Any
    adapter: Adapter


def live_children(adapter: Adapter, obj: Any) -> Iterator[tuple[str, Any]]:
    """The trackable children of one object.

    Raises:
        UntrackableError: The object does not say what it holds.
    """
    try:
        is_state, in_tree = holds_state(obj), isinstance(obj, Node)
        for name, child in adapter.children(obj):
            if is_state and (place := _plain_place(obj, name, child)) is not None:
                yield name, place
                continue
            found = adapter_of_type(type(child))
            if found is not None and (not found.asks_each or found.tracks(child)):
                yield name, child if in_tree else placed(obj, name, child)
    except MilepostError:
        raise
    except Exception as error:
        raise cannot_be_read(obj, error) from error


def _plain_place(obj: Any, name: str, child: Any) -> Place | None:
    """The place of a plain value; None for other children, and for a None that something else is to come in place of."""
    if child is None and attach.deferral.expects(obj, name):
        return None
    return child if isinstance(child, Place) else plain_place(obj, name, child)


def reachable(root: Any) -> list[Any]:
    """All trackable objects that can be reached from ``root``, nearest first; slot variables are not among them."""
    return walk(root, slots=False).objects


def walk(  # noqa: C901, PLR0915 - the inner loop of each save and restore, in which calls would cost time
    root: Any, attached: Sequence[tuple[str, Any]] = (), *, slots: bool = True, omissions: bool = False
) -> LiveGraph:
    """Numbers everything reachable from ``root``.

    Args:
        root: The object to start from; must be trackable.
        attached: More edges of the root, after its own; how a `Checkpoint` adds to a root that it was given.
        slots: Whether to look for slot variables.
        omissions: Whether to look for what a checkpoint would leave out.

    Raises:
        UntrackableError: The root is not trackable, or a dict holds a trackable object under a key that is no string.
        UnsupportedError: A slot variable is also an ordinary child, or has children.
        AdapterError: The adapter of an imported framework cannot be imported.
    """
    import_adapters()  # asking for the adapters of types that are known would not
    graph = LiveGraph()
    adapter = adapter_of(root)
    if adapter is None:
        raise UntrackableError("this object cannot be the root of a checkpoint", found=f"a {type(root).__name__}")
    objects, adapters, paths, edges = graph.objects, graph.adapters, graph.paths, graph.edges
    ids = {id(root): 0}
    objects.append(root)
    adapters.append(adapter)
    paths.append("")
    unfollowed: list[_Unfollowed] = []
    untaken: list[Untaken] = []
    number = 0
    while number < len(objects) or unfollowed:  # both grow while they are walked
        if number == len(objects):
            graph.first_skipped = graph.first_skipped or number
            holder, name, child, its_adapter = unfollowed.pop(0)
            target = ids.get(id(child))
            if target is None:
                target = ids[id(child)] = number
                objects.append(child)
                adapters.append(its_adapter)
                paths.append(child_path(paths[holder], name, is_root=holder == 0))
            edges[holder] = [*edges[holder], Edge(name, target)]
            continue
        obj, adapter, path = objects[number], adapters[number], paths[number]
        own: list[Edge] = []
        try:
            is_state, in_tree = holds_state(obj), isinstance(obj, Node)
            children: Any = adapter.children(obj)
            skipped = adapter.skipped_by_tensorflow(obj)
            if number == 0 and attached:
                names = {name for name, _ in attached}
                children = [*(pair for pair in children if pair[0] not in names), *attached]
            for name, child in children:
                if is_state and (place := _plain_place(obj, name, child)) is not None:
                    child = place
                found = adapter_of_type(type(child))
                if found is None or (found.asks_each and not found.tracks(child)):
                    if omissions and type(child) not in SETTINGS:
                        where = child_path(path, name, is_root=number == 0)
                        untaken.append(Untaken(child, where, is_state, type(obj) in _TREES, adapter.searched))
                    continue
                if not in_tree:
                    own_place = placed(obj, name, child)
                    if own_place is not child:
                        child = own_place
                        found = adapter_of_type(type(child))
                        assert found is not None, "places have adapters"
                if skipped and name in skipped:
                    unfollowed.append(_Unfollowed(number, name, child, found))
                    continue
                identity = id(child)
                target = ids.get(identity)
                if target is None:
                    target = ids[identity] = len(objects)
                    objects.append(child)
                    adapters.append(found)
                    paths.append(child_path(path, name, is_root=number == 0))
                own.append(Edge(name, target))
        except UntrackableError as error:
            raise error.with_context(key=path) from error.__cause__
        except MilepostError:
            raise
        except Exception as error:
            raise cannot_be_read(obj, error).with_context(key=path) from error
        if omissions:
            graph.omissions += changed_since(obj, path, is_state=is_state)
            if adapter.searched:
                graph.omissions += uncalled(obj, path)
                graph.omissions += plain_beside_arrays(obj, path)
            if not adapter.leaf and (unfinished := adapter.unfinished(obj)) is not None:
                kind = type(obj).__name__
                graph.omissions.append(Omitted(path, kind, unfinished.reason, unfinished.remedy, unfinished.doubtful))
        edges.append(own or _NO_EDGES)
        number += 1
    graph.first_skipped = graph.first_skipped or len(objects)
    graph.first_slot = len(objects)
    if slots:
        _walk_slots(graph, ids, omissions=omissions)
    if omissions:
        graph.omissions += (omitted for each in untaken for omitted in omission_of(each, ids))
        graph.omissions += left_out_of_accounts(graph, ids, slots=slots)
    return graph


def _walk_slots(graph: LiveGraph, ids: dict[int, int], *, omissions: bool) -> None:
    objects, adapters, paths = graph.objects, graph.adapters, graph.paths
    owners = [number for number, adapter in enumerate(adapters) if adapter.has_slots(objects[number])]
    if not owners:
        return
    candidates = [number for number, adapter in enumerate(adapters) if adapter.leaf]
    for owner in owners:
        try:
            _walk_slots_of(graph, owner, candidates, ids, omissions=omissions)
        except MilepostError:
            raise
        except Exception as error:
            raise cannot_be_read(objects[owner], error).with_context(key=paths[owner]) from error


def _walk_slots_of(
    graph: LiveGraph, owner: int, candidates: Sequence[int], ids: dict[int, int], *, omissions: bool
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
            slot_adapter = adapter_of(slot)
            if slot_adapter is None:
                raise UntrackableError("a slot variable is not trackable", key=path, found=f"a {type(slot).__name__}")
            known = ids.get(id(slot))
            if known is not None and adapter.slots_are_children:
                references.append(SlotReference(variable, name, known))
                continue
            if known is not None or next(live_children(slot_adapter, slot), None) is not None:
                raise UnsupportedError(
                    "a slot variable is also reachable as an ordinary child, or has children",
                    key=path,
                    remedy="let only get_slot() return it, or wrap it in NoDependency where an attribute, list or dict holds it",
                )
            ids[id(slot)] = len(objects)
            references.append(SlotReference(variable, name, len(objects)))
            objects.append(slot)
            adapters.append(slot_adapter)
            paths.append(path)
            graph.edges.append(_NO_EDGES)
    if omissions and not references and adapter.slot_names(optimizer):
        graph.omissions.append(without_variables(optimizer, paths[owner]))
