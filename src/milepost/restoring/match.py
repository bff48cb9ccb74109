"""Matches saved nodes with live objects: breadth first, along edges of the same name. No value changes.

The names of edges decide, never the keys. A key is a shortest path, which may differ between the program that saved and the one
that restores. A node is bound to the first live object that is found for it. If a live object lacks a saved child, the child is
deferred under its name, provided that there are values in it or below it.

Source of the rules: TensorFlow 2.21, observed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.equality import are_equal
from milepost.deferred.identity import any_restore_since, last_restore
from milepost.deferred.table import SlotKey
from milepost.distributed.own_values import OwnGraph, refuse_another_number
from milepost.engine.restore_record import RestoreRecord
from milepost.engine.translation import SAVE_COUNTER
from milepost.errors import MilepostError
from milepost.graph.adapter import Adapter, Value, adapter_during, adapter_of_type_during, values_of
from milepost.graph.containers import ListWrapper
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import ATTRIBUTES, tensor_key, unescape
from milepost.graph.numbers import FRACTIONS, taken_by_scalar
from milepost.graph.plain.places import PLAIN_PLACES, PLAIN_TYPES, PlainLeaf, Unsaveable, holds_state
from milepost.graph.plain.values import TYPE_NAMES, NumberTaker, taken_value
from milepost.graph.saved.all_names import loads_all
from milepost.graph.saved.edges import by_live_names, stand_ins
from milepost.graph.saved.hints import decode
from milepost.graph.saved.object_graph import Node, SavedValue
from milepost.graph.traversal import live_children
from milepost.restoring.growth import Growth
from milepost.restoring.saved_arrays import SavedArrays
from milepost.restoring.take import HintedTake, Take, new_take
from milepost.restoring.undo import raise_explained
from milepost.restoring.unsaved_slots import UnsavedSlot, stepped


class Deferred(NamedTuple):
    """A saved node for which a live object has no child yet.

    Attributes:
        holder: The live object.
        name: The name of the edge.
        node: The saved node.
        variable: For a slot variable, the variable.
        siblings: How many children the saved holder has.
    """

    holder: Any
    name: str | SlotKey
    node: int
    variable: Any = None
    siblings: int = 0


@dataclass(slots=True)
class Search:
    """What a match needs while it is being made. It takes as much memory as what the match finds.

    Attributes:
        taken: The node whose values a live object takes, by the identity of the object.
        bound_before: The node that a live object was bound to by earlier parts of the restore, by the identity of the object. It is
            empty until it is needed.
        deferred_edges: Holder, name and node of each deferred node.
        stand_ins: The children that may replace those that a live object lacks, by the identity of the object.
    """

    taken: dict[int, int] = field(default_factory=dict)
    bound_before: dict[int, int] = field(default_factory=dict)
    deferred_edges: set[tuple[Any, ...]] = field(default_factory=set)
    stand_ins: dict[int, dict[Any, Any]] = field(default_factory=dict)


_ENDED: Final = Search()
"""Stays empty, because nothing is searched for after a match."""


@dataclass(slots=True)
class Match:
    """What a restore will do.

    Attributes:
        bindings: Saved node to live object.
        copies: More live objects that take the values of a node, each after the node: parts of a module that were one at the save.
        takes: The objects that take values.
        deferred: The nodes whose objects do not exist yet.
        made_slots: Functions that remove the slot variables that optimizers made, or shared, for the match.
        adapted: The nodes of objects that give leaves values of other shapes than the saved ones have.
        filled: Live objects for which nothing was saved, and which another object has given values when it loaded its state.
        unsaved: The live state of optimizers that the checkpoint does not have.
        stepped: The optimizers that may have other state that the checkpoint does not have.
        fresh: Identities of the slot variables that optimizers made for the match. They have no old values.
        unused: For bound nodes, names of saved values that the live object does not have, or does not take.
        contradicted: Nodes whose live object takes the values of another node, each with that other node.
        missing: For bound nodes, names of live values that were not saved.
        may_lack: Whether there may be live objects for which nothing was saved.
        growth: The members that containers gain.
        is_late: Whether the match begins at an object that was made after the restore.
        may_be_later: Whether a live object may have values of this restore already, or of a later one.
        lacking: The live plain values, and members of lists of values, for which nothing was saved.
        search: What only the search needs; empty afterwards.
    """

    growth: Growth
    is_late: bool = False
    may_be_later: bool = True

    bindings: dict[int, Any] = field(default_factory=dict)
    copies: list[tuple[int, Any]] = field(default_factory=list)
    takes: list[Take] = field(default_factory=list)
    deferred: list[Deferred] = field(default_factory=list)
    made_slots: list[Callable[[], object]] = field(default_factory=list)
    adapted: set[int] = field(default_factory=set)
    filled: list[Any] = field(default_factory=list)
    unsaved: list[UnsavedSlot] = field(default_factory=list)
    stepped: Sequence[Any] = ()
    fresh: set[int] = field(default_factory=set)
    unused: dict[int, set[str]] = field(default_factory=dict)
    contradicted: dict[int, int] = field(default_factory=dict)
    missing: dict[int, list[str]] = field(default_factory=dict)
    may_lack: bool = False
    lacking: list[Any] = field(default_factory=list)
    search: Search = field(default_factory=Search)

    def holders(self) -> list[Any]:
        """All live objects that were matched."""
        return [*self.bindings.values(), *(obj for _, obj in self.copies)]

    def undo(self) -> None:
        """Removes the slot variables that were made for the match. A second call does nothing."""
        while self.made_slots:
            self.made_slots.pop()()


class Matcher:
    """Matches nodes of one checkpoint for one restore.

    Args:
        record: The record of the restore. An object that a later restore has reached keeps its values.
        own: The object graph, as this process takes it.
        member: The number of this process, and how many restore together.
    """

    def __init__(self, record: RestoreRecord, own: OwnGraph, member: tuple[int, int] = (0, 1)) -> None:
        self._reader = record.reader
        self._saved = record.saved
        self._nodes: Final = record.graph.nodes
        self._types: Final = record.graph.types
        self._uid = record.uid
        self._bound = record.bound
        self._with_values = bytes(record.graph.nodes_with_values())
        self._arrays = SavedArrays(record.graph, record.saved.specs)
        self._skip_slots = record.options.experimental_skip_slot_variables
        self._member = member
        self._kept = own.kept
        self._of_each_process = own.owners

    def match(self, operation: Operation, node: int, obj: Any, attached: Sequence[tuple[str, Any]] = ()) -> Match:
        """Matches ``node`` with ``obj``, and everything below both.

        Args:
            operation: The restore, or the operation in which the object came.
            node: The saved node to start from.
            obj: The live object for it.
            attached: More edges of ``obj``.

        Raises:
            MilepostError: The children or values of a live object cannot be read, or an optimizer cannot make a slot
                variable.
        """
        growth = Growth(operation, self._nodes, self._types, self._arrays, is_late=node != 0)
        match = Match(growth, node != 0, any_restore_since(self._uid), {node: obj})
        try:
            self._match_below(operation, match, node, obj, attached)
            if match.copies:
                self._match_copies(operation, match)
            if match.contradicted:
                self._prefer_last(operation, match)
            if not self._skip_slots:
                # a variable that was made after the restore is no optimizer
                kinds = set(map(type, match.bindings.values())) if node == 0 or len(match.bindings) > 1 else ()
                adapters = {kind: each for kind in kinds if (each := adapter_of_type_during(operation, kind))}
                if any("removable_slots" in each.overrides for each in adapters.values()):
                    self._find_unsaved(match, adapters)
                if self._saved.slot_nodes:
                    self._match_slots(operation, match)
                if node == 0 and any("has_stepped" in each.overrides for each in adapters.values()):
                    match.stepped = stepped(adapters, match.bindings.values(), may_lack=match.may_lack)
            for number in match.bindings.keys() & self._of_each_process:
                refuse_another_number(self._nodes[number].values, *self._member)
            match.search = _ENDED  # frees what it needed
            return match
        except BaseException as error:
            match.undo()
            raise_explained(error, self._reader.prefix, complete=True)

    def _match_below(  # noqa: PLR0915 - the inner loop of each restore, in which calls would cost time
        self, operation: Operation, match: Match, node: int, obj: Any, attached: Sequence[tuple[str, Any]]
    ) -> None:
        queue = deque([(node, obj)])
        known = operation.adapters
        nodes, types, bindings, growth = self._nodes, self._types, match.bindings, match.growth
        arrays = self._arrays.adapters
        bound = self._bound.__getitem__ if len(self._bound) else bindings.get
        unmatched: deque[tuple[Adapter, Sequence[str], Deferred]] = deque()
        while queue or unmatched:
            if not queue:
                self._match_stand_in(match, *unmatched.popleft(), queue)
                continue
            node, obj = queue.popleft()
            adapter = known.get(type(obj)) or adapter_of_type_during(operation, type(obj))
            assert adapter is not None, "only trackable objects are bound"
            saved = nodes[node]
            self._match_values(operation, match, node, saved, obj, adapter)
            edges = tuple(iter(saved.children))  # an iterator is not asked for its length, which would be a call
            if adapter.leaf and not edges:
                continue
            is_list = isinstance(obj, ListWrapper)
            remaining = match.growth.cut(obj, saved) if is_list else 0
            is_whole = saved.python == "list"
            if not edges and not holds_state(obj):
                lacking = [child for _, child in live_children(operation, adapter, obj)]
                match.may_lack |= bool(lacking)
                match.lacking += lacking if is_whole else ()
                continue
            live = dict(live_children(operation, adapter, obj))
            if is_list:
                for number in range(remaining, len(obj)):
                    live.pop(str(number), None)
            if attached:
                live.update(pair for pair in attached if type(pair[1]) is not Unsaveable)
                attached = ()
            names = [name for name, _ in edges]
            edges_of_live = by_live_names(adapter, obj, edges, live) if "aliases" in adapter.overrides else edges
            unwanted = frozenset(adapter.unwanted(obj, names) if "unwanted" in adapter.overrides else ())
            edge_names = {SAVE_COUNTER} if node == 0 else set()
            for (name, child_node), saved_name in zip(edges_of_live, names, strict=True):
                edge_names.add(name)
                child = live.get(name)
                other = bindings.get(child_node)
                if other is None:
                    other = bound(child_node)
                if other is not None or saved_name in unwanted:
                    is_another = child is not None and child is not other  # several live objects for one saved object
                    match.may_lack |= is_another
                    match.copies += [(child_node, child)] if is_another and loads_all(saved) else ()
                    growth.shared(obj, node, name, child, child_node, other)
                    continue
                # a container gains nothing where it has a plain value for a saved one, or an array for a saved array
                kind = types[child_node]
                if (
                    kind not in PLAIN_TYPES
                    if type(child) is PlainLeaf
                    else kind and (child is None or kind not in arrays)
                ):
                    child = growth.child(obj, node, name, child, child_node)
                if child is not None:
                    bindings[child_node] = child
                    queue.append((child_node, child))
                elif self._with_values[child_node] and not adapter.leaf:
                    unmatched.append((adapter, names, Deferred(obj, name, child_node, siblings=len(names))))
            if not edge_names.issuperset(live):
                match.may_lack = True
                match.lacking += [
                    child
                    for name, child in live.items()
                    if name not in edge_names and (is_whole or isinstance(child, PLAIN_PLACES))
                ]

    def _match_copies(self, operation: Operation, match: Match) -> None:
        """Matches nodes with more live objects, where a module lists an object by several names, and the live one has an object for each. PyTorch
        loads the value of each name, so all of them get it. An object that takes the values of another node is none of them."""
        others = {id(obj) for _, obj in [*match.bindings.items(), *self._bound.living()]}
        pending, match.copies = deque(match.copies), []
        while pending:
            node, obj = pending.popleft()
            adapter = adapter_of_type_during(operation, type(obj))
            if adapter is None or id(obj) in others:
                continue
            others.add(id(obj))
            match.copies.append((node, obj))
            self._match_values(operation, match, node, self._nodes[node], obj, adapter)
            live = {} if adapter.leaf else dict(live_children(operation, adapter, obj))
            edges = by_live_names(adapter, obj, self._nodes[node].children, live)
            pending += [(child, live[name]) for name, child in edges if name in live]

    def _match_stand_in(
        self,
        match: Match,
        adapter: Adapter,
        saved: Sequence[str],
        deferred: Deferred,
        queue: deque[tuple[int, Any]],
    ) -> None:
        """Finds another child for a saved edge when everything has been matched by name. If there is none, defers the node."""
        if deferred.node in match.bindings:
            return
        by_holder = match.search.stand_ins
        if id(deferred.holder) not in by_holder:  # computed once
            by_holder[id(deferred.holder)] = stand_ins(adapter, deferred.holder, saved)
        child = by_holder[id(deferred.holder)].get(deferred.name)
        if child is not None:
            match.bindings[deferred.node] = child
            queue.append((deferred.node, child))
            return
        key = (id(deferred.holder), deferred.name, deferred.node)
        if key not in match.search.deferred_edges:  # two saved names may lead to one child
            match.search.deferred_edges.add(key)
            match.deferred.append(deferred)

    def _match_values(
        self, operation: Operation, match: Match, node: int, saved_node: Node, obj: Any, adapter: Adapter
    ) -> None:
        saved, python = saved_node.values, saved_node.python
        values: Sequence[Value]
        if type(obj) is PlainLeaf:
            live = operation.held[obj]
            saved_as = python if python in PLAIN_TYPES else ""
            if saved_as != TYPE_NAMES[type(live)]:
                operation.saved_as[obj] = saved_as
            values = (taken_value(live, saved_as),)
        else:
            values = self._whatever_was_saved(saved) if adapter.open_ended and saved else values_of(adapter, obj)
            if python in PLAIN_TYPES and len(values) == len(saved) == 1 and not values[0].shape:
                spec = self._reader.spec(saved[0].key) if saved[0].key in self._reader else None
                live, accepts = values[0].dtype, values[0].accepts
                if spec is not None and spec.dtype in taken_by_scalar(live) - {live} - (accepts - FRACTIONS):
                    values = (NumberTaker(values[0], rounded=spec.dtype in accepts),)
        if not values:
            if saved:
                match.unused[node] = {unescape(value.name) for value in saved}
            return
        identity = id(obj)
        if identity in match.search.taken or (match.may_be_later and last_restore(obj) >= self._uid):
            self._compare(match, node, obj)
            return
        match.search.taken[identity] = node
        if len(values) == len(saved) == 1 and values[0].name == saved[0].name:
            take = new_take((node, obj, adapter, ((values[0], saved[0].key),)))
            match.takes.append(self._with_hints(take, saved_node) if saved_node.hints else take)
            return
        keys = {unescape(value.name): value.key for value in saved}
        paths = {path: None for value in saved for path, marker, _ in [value.key.partition(ATTRIBUTES)] if marker}
        pairs, missing = [], []
        stored_elsewhere = False
        for value in values:
            key = keys.pop(value.name, None)
            if key is None:
                key = self._unlisted_key(paths, value.name)
                stored_elsewhere = key is not None
            if key is None:
                missing.append(value.name)
            else:
                pairs.append((value, key))
        if pairs:
            take = Take(node, obj, adapter, pairs)
            match.takes.append(self._with_hints(take, saved_node) if saved_node.hints else take)
        if missing and not self._kept.get(node, frozenset()).issuperset(missing):
            match.missing[node] = missing
        if keys and not stored_elsewhere:
            match.unused[node] = set(keys)

    @staticmethod
    def _with_hints(take: Take, saved: Node) -> Take:
        """What an object takes, with the saved hints. It gets none if any value is read straight into its memory."""
        if not take.adapter.hints or any(value.destination is not None for value, _ in take.values):
            return take
        hinted = HintedTake(*take)
        hinted.hints = {name: array for name, array in decode(saved.hints).items() if name in take.adapter.hints}
        return hinted

    def _compare(self, match: Match, node: int, obj: Any) -> None:
        """Records the values of a node whose live object takes those of another node. Equal values are not lost."""
        first = match.search.taken.get(id(obj))
        if first is None:
            if last_restore(obj) > self._uid:
                return  # a later restore has replaced the values of all nodes
            if not match.search.bound_before:
                match.search.bound_before.update((id(each), number) for number, each in reversed(self._bound.living()))
            first = match.search.bound_before.get(id(obj))
        if first is None:
            return
        taken = {value.name: value.key for value in self._nodes[first].values}
        lost = {
            unescape(value.name)
            for value in self._nodes[node].values
            if value.name in taken and not self._are_equal(value.key, taken[value.name])
        }
        if lost:
            match.unused[node] = lost
            match.contradicted[node] = first

    def _prefer_last(self, operation: Operation, match: Match) -> None:
        """Lets an object that several nodes have other values for take those of the last name by which a module lists it, as PyTorch does."""
        positions = self._places_in_modules(operation, match)
        others: dict[int, list[int]] = {}
        for node, first in match.contradicted.items():
            if node in positions and first in positions:
                others.setdefault(first, []).append(node)
        takes = {take.node: number for number, take in enumerate(match.takes)} if others else {}
        for first, nodes in others.items():
            last = max(nodes, key=positions.__getitem__)
            number = takes.get(first)
            if number is None or positions[last] < positions[first]:
                continue
            take, saved = match.takes[number], self._nodes[last]
            keys = {unescape(value.name): value.key for value in saved.values}
            if {value.name for value, _ in take.values} != keys.keys():
                continue
            new = Take(last, take.obj, take.adapter, [(value, keys[value.name]) for value, _ in take.values])
            match.takes[number] = self._with_hints(new, saved) if saved.hints else new
            match.unused[first] = match.unused.pop(last)
            match.contradicted |= dict.fromkeys([first, *nodes], last)
            del match.contradicted[last]

    def _places_in_modules(self, operation: Operation, match: Match) -> dict[int, int]:
        """The nodes that modules list, each with its position in the order in which PyTorch loads them. Of several positions, the last counts."""
        positions: dict[int, int] = {}
        numbers = itertools.count()
        pending, opened = [next(iter(match.bindings))], set[int]()
        while pending:
            node = pending.pop()
            obj = match.bindings[node]
            adapter = adapter_during(operation, obj)
            if adapter is None or node in opened or adapter.leaf:
                continue
            opened.add(node)
            names = [name for name, _ in live_children(operation, adapter, obj)]
            children = dict(by_live_names(adapter, obj, self._nodes[node].children, names))
            live = [children[name] for name in names if name in children]
            if "loads_saved" in adapter.overrides:
                positions |= zip(live, numbers, strict=False)
            pending += [child for child in reversed(live) if child in match.bindings]
        return positions

    def _are_equal(self, key: str, other: str) -> bool:
        return not (key in self._reader and other in self._reader) or are_equal(self._reader, key, other)

    def _whatever_was_saved(self, saved: Sequence[SavedValue]) -> Sequence[Value]:
        keys = {unescape(value.name): value.key for value in saved}
        if any(key not in self._reader for key in keys.values()):
            stored = self._saved.stored_keys(saved[0])
            keys = {unescape(key.partition(ATTRIBUTES)[2]): key for key in stored}
        specs = {name: self._reader.spec(key) for name, key in keys.items()}
        return [Value(name, spec.dtype, spec.shape, np.empty(0)) for name, spec in specs.items()]

    def _unlisted_key(self, paths: Iterable[str], name: str) -> str | None:
        """The key of a value that the graph lists under another name. TensorFlow does so for iterators and tables."""
        for path in paths:
            key = tensor_key(path, name)
            if key in self._reader:
                return key
        return None

    def _match_slots(self, operation: Operation, match: Match) -> None:
        """Matches slot variables whose variable or optimizer was bound in this match."""
        for node, obj in list(match.bindings.items()):
            for owner_node, name, slot_node in self._saved.slots_of_variable.get(node, ()):
                owner = self._either(match, owner_node)
                if owner is not None:
                    self._match_slot(operation, match, owner, obj, name, slot_node)
            for variable_node, name, slot_node in self._nodes[node].slots:
                variable = self._either(match, variable_node)
                if variable is not None:
                    self._match_slot(operation, match, obj, variable, name, slot_node)

    def _find_unsaved(self, match: Match, adapters: Mapping[type, Adapter]) -> None:
        """Finds the state that the checkpoint does not have, of each optimizer that was bound in this match."""
        bindings, bound = match.bindings, self._bound
        for node, owner in bindings.items():
            adapter = adapters.get(type(owner))
            if adapter is None or "removable_slots" not in adapter.overrides:
                continue
            saved = {
                (id(bindings[variable] if variable in bindings else bound[variable]), name)
                for variable, name, _ in self._nodes[node].slots
            }
            names = [edge.name for edge in self._nodes[node].children]
            match.unsaved += [
                UnsavedSlot(node, owner, variable, name)
                for variable, name in adapter.removable_slots(owner, names)
                if variable is None or (id(variable), name) not in saved
            ]

    def _either(self, match: Match, node: int) -> Any:
        return match.bindings[node] if node in match.bindings else self._bound[node]

    def _match_slot(self, operation: Operation, match: Match, owner: Any, variable: Any, name: str, node: int) -> None:
        adapter = adapter_of_type_during(operation, type(owner))
        if adapter is None or "has_slots" not in adapter.overrides or not adapter.has_slots(owner):
            return
        slot, shared = adapter.slot(owner, variable, name), self._either(match, node)
        if shared is not None:
            take_back = None if slot is shared else adapter.share_slot(owner, variable, name, shared)
            if take_back is not None:
                match.made_slots.append(take_back)
            return
        if slot is None or not adapter.slot_fits(owner, variable, name, self._saved.specs(node)):
            match.made_slots.append(adapter.before_make_slot(owner, variable, name))
            try:
                slot = adapter.make_slot(owner, variable, name, self._saved.specs(node))
            except MilepostError as error:
                raise error.with_context(key=next((value.key for value in self._nodes[node].values), None)) from None
            if slot is None:
                match.made_slots.pop()
            else:
                match.fresh.add(id(slot))
        slot_adapter = adapter_during(operation, slot)
        if slot_adapter is None:
            match.deferred.append(Deferred(owner, (id(variable), name), node, variable))
            return
        match.bindings[node] = slot
        self._match_values(operation, match, node, self._nodes[node], slot, slot_adapter)
