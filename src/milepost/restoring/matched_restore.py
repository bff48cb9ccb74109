"""The bindings of a restore of an object-based checkpoint, and the reports that are made from them.

A report is computed when it is asked for, from the bindings and a fresh walk over the live objects. Assertions of the
status use the same report, so they never disagree with it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.collector import collection_paused, paused_for
from milepost.deferred.position import DeferredNodes, RestoredPosition
from milepost.deferred.rescan import look_again_below
from milepost.deferred.table import stop_waiting, withdraw
from milepost.distributed.own_values import graph_of_process
from milepost.engine import unasked
from milepost.engine.omissions import unsaveable
from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Entry, Outcome, Report, sorted_report
from milepost.engine.translation import SAVE_COUNTER, UNTRANSLATED, Translated
from milepost.errors import StorageError, UnrestoredWarning, warn
from milepost.graph.adapter import adapter_of, adapter_of_type
from milepost.graph.contract.operation import Operation
from milepost.graph.description import counted
from milepost.graph.keys import Subtrees, tensor_key, unescape
from milepost.graph.live_graph import LiveGraph
from milepost.graph.object_graph import ObjectGraph, SavedValue
from milepost.graph.omissions import is_at_or_below
from milepost.graph.plain.values import SHOWN_NONE, SPEC_OF_NONE
from milepost.graph.traversal import live_children, walk
from milepost.graph.trees.places import CheckedLeaf, Place
from milepost.restoring.check import live_spec
from milepost.restoring.converted import follow_converted
from milepost.restoring.growth import came_later
from milepost.restoring.identity import (
    Bindings,
    Reference,
    last_restore,
    reference_to,
    remember_restore,
    undo_remembering,
)
from milepost.restoring.match import Match, Matcher
from milepost.restoring.restoration import WatchedRestore
from milepost.restoring.unsaved_slots import STAYED, state_of
from milepost.tensor import TensorSpec

OWN: Final = frozenset({SAVE_COUNTER})
"""Names below the root that only milepost's checkpoints have, since milepost adds them itself."""
_NONE: Final[frozenset[str]] = frozenset()
_FILLED: Final = "not in the file under this name; the object above it has given it a value when it loaded its state"
_EMPTY: Final = str(SPEC_OF_NONE)


class MatchedRestore(WatchedRestore):
    """The part of a restore that remembers which live object has the values of which saved node.

    Args:
        reader: The open checkpoint.
        graph: Its object graph.
        options: Whether slot variables are skipped, and what may be left out.
        never_saved: Names below the root that files of this kind never have. They do not count as missing.
        member: The number of this process, and how many restore together.
        translated: The changes that were made in the object graph, and the other changes for the program.

    Attributes:
        graph: Its object graph, as this process takes it.
        deferred: The deferred nodes.
    """

    _has_warned = True
    """Whether nothing is left to warn of, as long as the object is not complete."""

    def __init__(
        self,
        reader: BundleReader,
        graph: ObjectGraph,
        options: CheckpointOptions,
        never_saved: Collection[str] = (),
        member: tuple[int, int] = (0, 1),
        translated: Translated = UNTRANSLATED,
    ) -> None:
        super().__init__(reader, translated.translation)
        reader = self.reader
        self._translated = translated
        own = graph_of_process(graph, reader.prefix, *member)
        self._never_saved = never_saved
        self.graph = own.graph
        self._skip_slots = options.experimental_skip_slot_variables
        self._allow_unsaved = options.allow_unsaved
        self.deferred = DeferredNodes(reader)
        self._bound = Bindings(self.uid)
        self._unused: dict[int, frozenset[str]] = {}
        self._contradicted: dict[int, int] = {}
        self._filled: dict[int, Reference] = {}
        self._missing: dict[int, frozenset[str]] = {}
        self._lacking: dict[int, Reference] = {}
        self._stayed: dict[int, Reference] = {}
        self._matcher = Matcher(reader, own, self.uid, self._bound, skip_slots=self._skip_slots, member=member)
        self._has_warned = False

    def saved_spec(self, key: str) -> str:
        spec = super().saved_spec(key)
        return SHOWN_NONE if spec == _EMPTY and key in self._nones else spec

    @cached_property
    def _nones(self) -> frozenset[str]:
        return self.graph.nones() | self._translated.nones

    def _follow_converted(self, operation: Operation) -> list[int]:
        return follow_converted(operation, self.reader, self.graph, self._bound)

    def matched_nothing(self) -> bool:
        """Whether no live object except the root was matched."""
        return self.bound_count() <= 1

    def took_no_values(self) -> bool:
        """Whether no live object got values, except the `save_counter`, which every restore makes."""
        counters = {edge.node for edge in self.graph.nodes[0].children if edge.name == SAVE_COUNTER}
        return not any(self.graph.nodes[node].values for node in self._bound if node not in counters)

    def missing(self, operation: Operation) -> list[Entry]:
        """Live values that are not in the checkpoint, and that no later restore has assigned, except those of `_warn_of_stayed`."""
        self._follow_converted(operation)
        return [
            entry
            for entry in self._account_of_live(operation, self._bound.living(), only_unrestored=True)
            if not entry.skipped_by_tensorflow and entry.note != STAYED
        ]

    def _find_stayed(self, optimizers: Sequence[Any], operation: Operation) -> None:
        """Remembers the state of optimizers that the restore does not change, because the checkpoint lacks it."""
        if optimizers:
            bound = {id(obj) for _, obj in self._bound.living()}
            lacking = (obj for obj in state_of(optimizers, operation) if id(obj) not in bound)
            self._stayed = {id(obj): reference_to(obj) for obj in lacking}

    def _warn_of_stayed(self, operation: Operation) -> None:
        """Warns of the state that optimizers have made since the save, if it stays."""
        if not self._stayed:
            return
        live = self._account_of_live(operation, self._bound.living(), only_unrestored=True)
        stayed = [replace(entry, note="") for entry in live if entry.note == STAYED]
        if stayed:
            was, keeps, it = ("was", "keeps", "it") if len(stayed) == 1 else ("were", "keep", "them")
            warn(
                f"{self.reader.prefix}: {counted(len(stayed), 'value')} of an optimizer {was} made after this checkpoint was saved, and {keeps} "
                f"what the training since has left in {it}, because the framework does not remove state from an optimizer. To go on exactly "
                "as the checkpoint did, restore into a new optimizer:"
                f"{unasked.listed(stayed)}",
                UnrestoredWarning,
                self.place,
            )

    def unwatch(self) -> None:
        super().unwatch()
        if self.deferred.any_superseded:
            stop_waiting(self.uid, superseded_only=True)

    def bound(self, node: int) -> Any:
        """The live object that matches a node, or None."""
        return self._bound[node]

    def exchange(self, others: Mapping[int, Any]) -> None:
        """Replaces matched live objects by others, given by the identities of the replaced objects."""
        self._bound.exchange(others)

    def first_key(self, node: int) -> str:
        """The key of a node's first value, or of the first value below it."""
        nodes, seen = [node], {node}
        for number in nodes:
            values = self.graph.nodes[number].values
            if values:
                return self._matcher.keys_in_file(values[0])[0]
            below = [edge.node for edge in self.graph.nodes[number].children if edge.node not in seen]
            seen.update(below)
            nodes += below
        return self._describe(node)

    def stored_keys(self, value: SavedValue) -> list[str]:
        """All keys in the files for the object of this value."""
        return self._matcher.stored_keys(value)

    def specs(self, node: int) -> Mapping[str, TensorSpec]:
        """Element types and shapes of the values of a node, by local name."""
        return self._matcher.specs(node)

    def is_settled(self, node: int) -> bool:
        """Whether live objects have taken all values of a node and of the nodes below it."""
        nodes, seen = [node], {node}
        for number in nodes:
            if self._bound[number] is not None:
                continue  # nodes below it are deferred on that object
            saved = self.graph.nodes[number]
            if saved.values or saved.slots:
                return False
            below = {edge.node for edge in saved.children} - seen
            seen |= below
            nodes += below
        return True

    def bound_count(self) -> int:
        """How many saved nodes match a live object."""
        return len(self._bound)

    def _remember(
        self, match: Match, takers: Sequence[Any], successors: Mapping[int, Any], before: list[int] | None = None
    ) -> None:
        """Binds what was matched.

        Args:
            match: The match.
            takers: The objects that took values.
            successors: Successors by the identity of the object that each replaces.
            before: Gets the number of the restore that gave each taker its values before, for `_forget`.
        """
        before = [] if before is None else before
        uid, bound = self.uid, self._bound
        with paused_for(len(match.bindings)):
            bound.update(match.bindings, successors)
            if match.copies:
                bound.add_copies(match.copies, successors)
            for taker in takers:
                before.append(remember_restore(taker, uid, bound))
        for node, names in match.unused.items():
            self._unused[node] = frozenset(names)
        for node, missing in match.missing.items():
            self._missing[node] = frozenset(missing)
        for obj in match.lacking:
            self._lacking[id(obj)] = reference_to(obj)
        for obj in match.filled:
            self._filled[id(obj)] = reference_to(obj)
        self._contradicted.update(match.contradicted)

    def _forget(
        self, match: Match, takers: Sequence[Any], before: Sequence[int], positions: list[RestoredPosition]
    ) -> None:
        """Takes back `_remember`, and the positions that were made after it.

        Args:
            match: The match.
            takers: The objects that took values.
            before: What `_remember` has put there, which is less than all if it failed.
            positions: The positions.
        """
        withdraw(positions)
        positions.clear()
        for obj, uid in itertools.zip_longest(takers, before, fillvalue=0):
            undo_remembering(obj, self.uid, uid)
        for node in match.bindings:
            del self._bound[node]
            self._unused.pop(node, None)
            self._contradicted.pop(node, None)
            self._missing.pop(node, None)
        for obj in match.lacking:
            self._lacking.pop(id(obj), None)
        for obj in match.filled:
            self._filled.pop(id(obj), None)

    def report(self, operation: Operation) -> Report:
        """A report of every saved value, and of every live value reachable from the root of the operation now."""
        return sorted_report(self.reader.prefix, self._entries(operation))

    def unmatched(self, operation: Operation) -> list[Entry]:
        """The entries of `report` for all values but those that were matched, in any order."""
        entries = self._entries(operation, with_matched=False)
        return [entry for entry in entries if entry.outcome is not Outcome.MATCHED]

    @collection_paused()
    def _entries(self, operation: Operation, *, with_matched: bool = True) -> list[Entry]:
        look_again_below(operation)
        self._follow_exchanges(operation)
        with suppress(StorageError):  # without the files, a converted object counts as another one
            self._follow_converted(operation)
        living = self._bound.living()
        return [
            *self._account_of_saved(self._deferred_nodes(), living, with_matched=with_matched),
            *self._account_of_live(operation, living),
        ]

    def _follow_exchanges(self, operation: Operation) -> None:
        """Binds the present objects instead of those that were replaced since the restore, such as buffers."""
        holders = [(saved, self._bound[number]) for number, saved in self.graph.inner]
        living = {id(obj) for _, obj in self._bound.living()}
        for saved, obj in holders:
            if obj is None:
                continue
            adapter = adapter_of_type(type(obj))
            if adapter is None or adapter.leaf:
                continue
            names = adapter.exchanged(obj) if "exchanged" in adapter.overrides else ()
            children = dict(live_children(operation, adapter, obj)) if names else {}
            for name, child in saved.children:
                if name in names and name in children and child in self._bound and id(children[name]) not in living:
                    self._bound[child] = children[name]
            for variable, name, slot in saved.slots:
                if slot in self._bound and (present := adapter.slot(obj, self._bound[variable], name)) is not None:
                    self._bound[slot] = present

    def outcomes(self) -> Counter[Outcome]:
        outcomes = self._outcomes_of_saved(self._deferred_nodes(), self._bound.living())
        found = Counter(outcome for *_, outcome in outcomes)
        found[Outcome.IGNORED] += len(self._translated.left_out)
        return found

    def _outcomes_of_saved(
        self, deferred: Collection[int], living: Iterable[tuple[int, Any]], *, with_matched: bool = True
    ) -> Iterator[tuple[int, str, Any, Outcome]]:
        """Node, key, live object and outcome of each saved value."""
        objects = dict(living)
        for number in range(len(self.graph.nodes)):
            if not (with_matched or number in self._unused or number not in objects):
                continue
            if self._skip_slots and self._is_skipped(number):
                continue
            obj, unused = objects.get(number), self._unused.get(number, _NONE)
            for value, key in self._matcher.values_in_file(number):
                if obj is not None and unescape(value.name) not in unused:
                    yield number, key, obj, Outcome.MATCHED
                elif obj is None and number in deferred:
                    yield number, key, obj, Outcome.DEFERRED
                else:
                    yield number, key, obj, Outcome.UNEXPECTED

    def _account_of_saved(
        self, deferred: Collection[int], living: Iterable[tuple[int, Any]], *, with_matched: bool = True
    ) -> list[Entry]:
        """The entries of saved values.

        Args:
            deferred: The nodes that an object may still take.
            living: The nodes whose live objects still exist, each with its object.
            with_matched: Whether to list values that were matched.
        """
        entries = []
        for number, key, obj, outcome in self._outcomes_of_saved(deferred, living, with_matched=with_matched):
            if outcome is Outcome.MATCHED:
                if with_matched:
                    entries.append(self.matched(key))
                continue
            note = ""
            if outcome is Outcome.UNEXPECTED and obj is not None:
                note = (
                    self._contradiction(number) or f"the live object, of type {type(obj).__name__}, holds no such value"
                )
            elif outcome is Outcome.UNEXPECTED and number in self._bound:
                note = "its object no longer exists"
            entries.append(Entry(outcome, key, self.saved_spec(key), note=note))
        for number, node in self.graph.inner:
            if node.saver and not (self._skip_slots and self._is_skipped(number)):
                note = f"written by the custom saver {node.saver!r}, which milepost does not know"
                entries.append(Entry(Outcome.UNEXPECTED, self._describe(number), note=note))
        left_out, note = self._translated.left_out, "left out by rename, ignore or only"
        entries += [Entry(Outcome.IGNORED, key, self.saved_spec(key), note=note) for key in left_out]
        return entries

    def _account_of_live(
        self,
        operation: Operation,
        living: Iterable[tuple[int, Any]],
        *,
        only_unrestored: bool = False,
    ) -> list[Entry]:
        """The entries of live values.

        Args:
            operation: The operation. The values are those below its root.
            living: The nodes whose live objects still exist, each with its object.
            only_unrestored: Whether to leave out values that a later restore has assigned.
        """
        bound = {id(obj) for _, obj in living}
        missing = {id(self._bound[node]): names for node, names in self._missing.items()}
        live = walk(operation, slots=not self._skip_slots, omissions=True)
        writer_saves = cache(self.graph.writer_saves)  # seldom needed
        later = self._later_members(live, bound)
        entries = unsaveable(live.omissions, self._allow_unsaved)
        restored = bound if not missing else bound - missing.keys()
        for number, values in live.values(restored):
            identity = id(obj := live.objects[number])
            path = live.paths[number]
            is_own = not self._is_lacking(obj) and (came_later(obj, bound) or path in later)
            if identity not in bound and (is_own or path in self._never_saved):
                continue
            if only_unrestored and (last_restore(obj) > self.uid or live.paths[number] == SAVE_COUNTER):
                continue
            if is_at_or_below(live.paths[number], self._allow_unsaved):
                continue
            if self._translated.translation.leaves_alone(path):
                if not only_unrestored:
                    keys = [
                        (tensor_key(path, value.name), live_spec(operation, value, live.objects[number]))
                        for value in values
                    ]
                    note = "left alone by ignore or only"
                    entries += [Entry(Outcome.IGNORED, key, live=spec, note=note) for key, spec in keys]
                continue
            for value in values:
                if identity not in bound or value.name in missing.get(identity, _NONE):
                    key = tensor_key(live.paths[number], value.name)
                    skipped_too, plain = writer_saves()
                    # TensorFlow saves no trees of JAX arrays, so text that a saved tree lacks is missing and not skipped.
                    saved = type(obj) is CheckedLeaf or (plain if isinstance(obj, Place) else skipped_too)
                    skipped = not saved and (value.skipped_by_tensorflow or number in live.skipped_by_tensorflow)
                    note = "TensorFlow saves no such values" if skipped else STAYED if self._is_stayed(obj) else ""
                    outcome = Outcome.MISSING
                    if self._is_filled(obj):
                        if only_unrestored:
                            continue
                        outcome, note = Outcome.MATCHED, _FILLED
                    entries.append(Entry(outcome, key, "", live_spec(operation, value, obj), note, skipped))
        return entries

    def _is_stayed(self, obj: Any) -> bool:
        """Whether this is state of an optimizer that existed at the restore, and that nothing was saved for."""
        return _has(self._stayed, obj)

    def _is_filled(self, obj: Any) -> bool:
        """Whether another object has given this one a value when it loaded its state, though nothing was saved for it."""
        return _has(self._filled, obj)

    def _is_lacking(self, obj: Any) -> bool:
        """Whether an object existed at the restore, and nothing was saved for it or for the tuple or tree that holds it."""
        while obj is not None:
            if _has(self._lacking, obj):
                return True
            obj = obj.parent if isinstance(obj, Place) else None
        return False

    def _later_members(self, live: LiveGraph, bound: Collection[int]) -> Subtrees:
        """Paths of members that the program has added to lists of values since the restore."""
        lists = {id(self._bound[number]) for number, name in enumerate(self.graph.types) if name == "list"}
        return Subtrees(
            live.paths[edge.node]
            for number, obj in enumerate(live.objects if lists else ())
            if id(obj) in lists
            for edge in live.edges[number]
            if id(live.objects[edge.node]) not in bound and not self._is_lacking(live.objects[edge.node])
        )

    def _deferred_nodes(self) -> set[int]:
        """Nodes that an object may still take: deferred nodes, nodes below them, and slot variables of both."""
        deferred = self._with_below(self.deferred)
        for variable, slots in self._matcher.slots_of_variable.items():
            for owner, _, slot in slots:
                may_come = owner in deferred or self._may_make_slots(owner)
                if may_come and (variable in deferred or variable in self._bound):
                    deferred.add(slot)
        return deferred

    def _with_below(self, deferred: Iterable[int]) -> set[int]:
        """Deferred nodes, and those below them that no object has taken."""
        nodes = list(deferred)
        found = set(nodes)
        for node in nodes:
            below = {edge.node for edge in self.graph.nodes[node].children} - found
            below = {each for each in below if self._bound[each] is None}
            nodes += below
            found |= below
        return found

    def _may_make_slots(self, node: int) -> bool:
        adapter = adapter_of(owner := self._bound[node])
        return adapter is not None and "has_slots" in adapter.overrides and adapter.has_slots(owner)

    def _is_skipped(self, node: int) -> bool:
        return self._skip_slots and node in self._matcher.slot_nodes

    def _describe(self, node: int) -> str:
        values = self.graph.nodes[node].values
        return self._matcher.keys_in_file(values[0])[0] if values else f"node {node} of the object graph"

    def _contradiction(self, node: int) -> str:
        """Why the live object of a node has other values, if it took those of another node."""
        first = self._contradicted.get(node)
        if first is None:
            return ""
        key = self._describe(first)
        return f"one live object matches this value and {key}; it took the value of {key}"

    def warn_of_unused(self) -> None:
        """Warns once of saved values that no object took."""
        if self._has_warned or self.partial_expected or not self._bound:
            return
        self._has_warned = True
        lost = [
            f"{key} ({note})" if (note := self._contradiction(number)) else key
            for number in range(len(self.graph.nodes))
            if (number not in self._bound or number in self._unused) and not self._is_skipped(number)
            for value, key in self._matcher.values_in_file(number)
            if number not in self._bound or unescape(value.name) in self._unused.get(number, _NONE)
        ]
        if lost:
            warn(
                f"{self.reader.prefix}: {counted(len(lost), 'saved value')} {'was' if len(lost) == 1 else 'were'} never restored to any object "
                f"(call expect_partial() on the status if that is intended):{unasked.listed(lost)}",
                UnrestoredWarning,
                self.place,
            )


def _has(references: Mapping[int, Reference], obj: Any) -> bool:
    """Whether an object is among those that references by identity lead to. Another one may have its identity by now."""
    reference = references.get(id(obj))
    return reference is not None and reference() is obj
