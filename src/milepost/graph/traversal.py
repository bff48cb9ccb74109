"""Walks over live objects, breadth first, in TensorFlow's order of node ids.

Children come in each object's own order and the first visit gives an object its id and its path; slot variables come
after all others: for each optimizer in id order, for each of its slot names, for each variable in id order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from milepost.errors import MilepostError, UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Value, adapter_of, adapter_of_type
from milepost.graph.containers import find_trackable
from milepost.graph.frameworks import import_adapters
from milepost.graph.keys import child_path, slot_path
from milepost.graph.object_graph import Edge, SlotReference
from milepost.graph.omissions import Accounted, Omission, Omitted
from milepost.graph.places import Node, Place, Tree, placed
from milepost.graph.plain_places import Unsaveable, holds_state, plain_place
from milepost.graph.remedies import cannot_be_read, remedy_for, remedy_for_state
from milepost.graph.trees import holds_no_data
from milepost.graph.waiting import waiting_on

_NO_EDGES: Final[list[Edge]] = []


class _Unfollowed(NamedTuple):
    """A private edge; followed last, so that only what no other edge leads to is private."""

    holder: int
    name: str
    child: Any
    adapter: Adapter


@dataclass(slots=True)
class LiveGraph:
    """Live objects and their edges, numbered as a checkpoint of them would be.

    Attributes:
        objects: The objects, by node id; number 0 is the root.
        adapters: The adapter of each.
        edges: The named edges of each.
        paths: The escaped path of each from the root; for a slot variable, its slot path.
        slots: For each optimizer's node, its slot variables.
        first_private: Id of the first object that only edges lead to which TensorFlow would not follow.
        first_slot: Id of the first slot variable; all from there on are slot variables.
        omissions: What a checkpoint of them would leave out, if the walk looked for that.
    """

    objects: list[Any] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    edges: list[list[Edge]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    slots: dict[int, list[SlotReference]] = field(default_factory=dict)
    first_private: int = 0
    first_slot: int = 0
    omissions: list[Omitted] = field(default_factory=list)

    def is_private(self, node: int) -> bool:
        """Whether TensorFlow would not save this object."""
        return self.first_private <= node < self.first_slot

    def values(self) -> Iterator[tuple[int, Sequence[Value]]]:
        """Every node that has values of its own, with them."""
        for number, obj in enumerate(self.objects):
            try:
                values = values_of(self.adapters[number], obj)
            except (UntrackableError, UnsupportedError) as error:
                raise error.with_context(key=self.paths[number]) from error.__cause__
            if values:
                yield number, values


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
            if found is not None and (not found.conditional or found.tracks(child)):
                yield name, child if in_tree else placed(obj, name, child)
    except MilepostError:
        raise
    except Exception as error:
        raise cannot_be_read(obj, error) from error


def _plain_place(obj: Any, name: str, child: Any) -> Place | None:
    """The place of a plain value; None for other children, and for a None that something else is to come in place of."""
    if child is None and name in waiting_on(obj):
        return None
    return child if isinstance(child, Place) else plain_place(obj, name, child)


def values_of(adapter: Adapter, obj: Any) -> Sequence[Value]:
    """The values of one object.

    Raises:
        UntrackableError: The object does not say what it holds.
    """
    try:
        return adapter.values(obj)
    except MilepostError:
        raise
    except Exception as error:
        raise cannot_be_read(obj, error) from error


def reachable(root: Any) -> list[Any]:
    """All trackable objects that can be reached from ``root``, nearest first; slot variables are not among them."""
    return walk(root, slots=False).objects


def walk(
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
    number = 0
    while number < len(objects) or unfollowed:  # both grow while they are walked
        if number == len(objects):
            graph.first_private = graph.first_private or number
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
            private = adapter.private(obj)
            if number == 0 and attached:
                names = {name for name, _ in attached}
                children = [*(pair for pair in children if pair[0] not in names), *attached]
            for name, child in children:
                if is_state and (place := _plain_place(obj, name, child)) is not None:
                    child = place
                found = adapter_of_type(type(child))
                if found is None or (found.conditional and not found.tracks(child)):
                    if omissions and type(child) not in _PLAIN:
                        where = child_path(path, name, is_root=number == 0)
                        _note_omission(graph, where, child, is_state=is_state, in_tree=type(obj) in _TREES)
                    continue
                if not in_tree:
                    own_place = placed(obj, name, child)
                    if own_place is not child:
                        child = own_place
                        found = adapter_of_type(type(child))
                        assert found is not None, "places have adapters"
                if private and name in private:
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
            _note_changes(graph, path, obj, is_state=is_state)
        edges.append(own or _NO_EDGES)
        number += 1
    graph.first_private = graph.first_private or len(objects)
    graph.first_slot = len(objects)
    if slots:
        _walk_slots(graph, ids, omissions=omissions)
    if omissions:
        _compare_with_accounts(graph, ids, slots=slots)
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
                    remedy="let only get_slot() lead to it: hold it in no attribute, list or dict but one in NoDependency",
                )
            ids[id(slot)] = len(objects)
            references.append(SlotReference(variable, name, len(objects)))
            objects.append(slot)
            adapters.append(slot_adapter)
            paths.append(path)
            graph.edges.append(_NO_EDGES)
    if omissions and not references and adapter.slot_names(optimizer):
        kind = type(optimizer).__name__
        reason = f"the state that this {kind} has for each variable, for none of them is in the checkpoint"
        graph.omissions.append(Omitted(paths[owner], kind, reason, _ADD_MODEL, doubtful=True))


_TREES: Final = (Node, Tree)
_STORABLE: Final = "hold it as numbers, text or arrays; or keep it out of the tree"
_ADD_MODEL: Final = "put the model that it trains into the checkpoint too"
_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type, type(lambda: None)})
"""Types of attributes that are never saved, by the guide's own rule, and hold nothing."""
_STATELESS: Final = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)
"""What a checkpoint may hold without saving it."""


def _note_omission(graph: LiveGraph, path: str, value: Any, *, is_state: bool = False, in_tree: bool = False) -> None:
    if type(value) is Unsaveable:
        value, is_state = value.value, True
    adapter = adapter_of_type(type(value))
    kind = type(value).__name__
    omission = adapter.omission(value) if adapter is not None else None
    if is_state and (omission is None or omission.doubtful):
        if isinstance(value, _STATELESS):
            return
        omission = Omission(f"a {kind} in a checkpoint is state, and has no form in a file", remedy_for_state(value))
    elif adapter is None:
        held = find_trackable(value)
        reason = f"a {kind} is not tracked, but holds a {type(held).__name__}"
        omission = None if held is None else Omission(reason, doubtful=not in_tree)
        if held is None and in_tree and not holds_no_data(value):
            omission = Omission(f"a leaf of a tree is a {kind}, which cannot be stored", _STORABLE)
    if omission is not None:
        general = remedy_for_state(value) if is_state else remedy_for(value, has_adapter=adapter is not None)
        remedy = omission.remedy or general
        graph.omissions.append(Omitted(path, kind, omission.reason, remedy, omission.doubtful))


def _note_changes(graph: LiveGraph, path: str, obj: Any, *, is_state: bool) -> None:
    changed = getattr(type(obj), "_changed_outside", None)
    if changed is not None and changed(obj):
        reason = "the list or dict that was assigned here has been changed since, and its tracked copy has not"
        graph.omissions.append(Omitted(path, type(obj).__name__, reason, "change the attribute itself", doubtful=True))
    now_numbers = getattr(type(obj), "_now_numbers", None)
    if now_numbers is not None and not is_state:
        for name in now_numbers(obj):
            child = child_path(path, name, is_root=path == "")
            reason = f"it was tracked, and is a number now, which a {type(obj).__name__} does not save"
            remedy = "give the number to what it was, as assign() does, or hold it in the Checkpoint itself"
            graph.omissions.append(Omitted(child, type(vars(obj)[name]).__name__, reason, remedy, doubtful=True))


def _compare_with_accounts(graph: LiveGraph, ids: dict[int, int], *, slots: bool) -> None:
    """Notes what frameworks would have saved of the objects, and the graph does not hold."""
    noted = {omitted.path for omitted in graph.omissions if not omitted.doubtful}
    covered: set[int] = set()
    for number, adapter in enumerate(graph.adapters[: graph.first_slot]):
        if number in covered:
            continue
        obj = graph.objects[number]
        below: dict[int, dict[str, int]] = {}
        held = {(reference.variable, reference.name) for reference in graph.slots.get(number, ())}
        for steps, value, variable, remedy, anywhere in _account(adapter, obj, graph.paths[number]):
            if variable is not None:
                if slots and (ids.get(id(variable), -1), steps[0]) not in held:
                    _note_slot(graph, number, ids.get(id(variable)), steps[0], remedy, noted)
                continue
            node, path = number, graph.paths[number]
            if anywhere and id(value) in ids:
                continue
            for step in steps:
                names = below.get(node)
                if names is None:
                    names = below[node] = dict(graph.edges[node])
                path = child_path(path, step, is_root=path == "")
                if step not in names or anywhere:
                    break
                node = names[step]
                covered.add(node)
            else:
                continue
            if not any(path == known or path.startswith(known + "/") for known in noted):
                noted.add(path)
                kind = type(value).__name__
                reason = (
                    f"{type(obj).__name__} has this {kind} in its own account of its state, and the checkpoint has not"
                )
                graph.omissions.append(Omitted(path, kind, reason, remedy))


def _account(adapter: Adapter, obj: Any, path: str) -> list[Accounted]:
    try:
        return list(adapter.account(obj))
    except MilepostError as error:
        raise error.with_context(key=path) from error.__cause__
    except Exception as error:
        raise cannot_be_read(obj, error).with_context(key=path) from error


def _note_slot(graph: LiveGraph, owner: int, variable: int | None, name: str, remedy: str, noted: set[str]) -> None:
    path = graph.paths[owner]
    kind = type(graph.objects[owner]).__name__
    if variable is not None:
        reason = f"the state {name!r} that this {kind} has for {graph.paths[variable]}"
    else:
        reason = f"the state that this {kind} has for parameters that are not in the checkpoint"
        remedy = remedy or _ADD_MODEL
    if path not in noted:
        noted.add(path)
        graph.omissions.append(Omitted(path, kind, reason, remedy))
