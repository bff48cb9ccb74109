"""One restore of an object-based checkpoint: match, check, deliver, remember.

The first two steps change nothing, and what fails after them is taken back (`milepost.engine.undo`), so a restore that
fails has changed nothing. What no live object takes is deferred (`milepost.deferred.table`) on the object that will hold it, and
goes through the same four steps when it comes.

Files are open for as long as something is deferred that no newer restore gives. Nothing here refers in a circle, so that a
restore that nobody asks about any more, and of which nothing is deferred, is gone at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.deferred.nodes import DeferredNodes
from milepost.deferred.position import RestoredPosition
from milepost.deferred.rescan import look_again_below
from milepost.deferred.table import SlotKey, defer, deferred_on, stop_waiting, supersede, withdraw
from milepost.engine import unasked
from milepost.engine.collector import collection_paused
from milepost.engine.deliver import check, deliver, live_spec
from milepost.engine.growth import came_later
from milepost.engine.identity import (
    Bindings,
    Kept,
    Reference,
    last_restore,
    reference_to,
    remember_restore,
    undo_remembering,
)
from milepost.engine.match import SAVE_COUNTER, Match, Matcher
from milepost.engine.omissions import unsaveable
from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Entry, Outcome, Report, sorted_report
from milepost.engine.restoration import WatchedRestore
from milepost.engine.undo import Undo, raise_explained
from milepost.errors import MilepostError, MismatchError, UnrestoredWarning, warn
from milepost.graph.adapter import Adapter, adapter_of
from milepost.graph.description import counted
from milepost.graph.keys import Subtrees, tensor_key, unescape
from milepost.graph.live_graph import LiveGraph
from milepost.graph.object_graph import ObjectGraph, SavedValue
from milepost.graph.omissions import is_at_or_below
from milepost.graph.traversal import live_children, walk
from milepost.graph.trees.places import CheckedLeaf, Place, places_in_use
from milepost.tensor import TensorSpec

_NONE: Final[frozenset[str]] = frozenset()


def _tell_again(told: Sequence[tuple[Adapter, Any]]) -> None:
    """Has objects compute what follows from the values that they have now."""
    for adapter, obj in told:
        with suppress(Exception):  # one of them is why the restore failed
            adapter.on_restored(obj)


class Restoration(WatchedRestore):
    """One restore of an object-based checkpoint, for as long as anybody asks about it or something of it is deferred.

    Args:
        reader: The open checkpoint.
        graph: Its object graph.
        options: Whether slot variables are skipped.
        never_saved: Names below the root that files of this kind never have, so that none lacks them.

    Attributes:
        graph: Its object graph.
        deferred: The deferred nodes.
    """

    def __init__(
        self,
        reader: BundleReader,
        graph: ObjectGraph,
        options: CheckpointOptions,
        never_saved: Collection[str] = (),
    ) -> None:
        self._has_warned = False
        super().__init__(reader)
        self._never_saved = never_saved
        self.graph = graph
        self._skip_slots = options.experimental_skip_slot_variables
        self._allow_unsaved = options.allow_unsaved
        self.deferred = DeferredNodes(reader)
        self._bound = Bindings()
        self._kept = Kept(self.uid)
        self._unused: dict[int, frozenset[str]] = {}
        self._missing: dict[int, frozenset[str]] = {}
        self._lacking: dict[int, Reference] = {}
        self._matcher = Matcher(reader, graph, self.uid, self._bound, skip_slots=self._skip_slots)

    @places_in_use()
    def restore(self, root: Any, attached: Sequence[tuple[str, Any]] = ()) -> None:
        """Restores everything reachable from ``root``, which stands for node 0, and defers the rest.

        Args:
            root: The live root.
            attached: More edges of the root, after its own.

        Raises:
            MismatchError: A saved value does not fit the live object; nothing was changed.
            CorruptCheckpointError: The checkpoint is damaged; nothing was changed.
            StorageError: It could not be read.
            RefusedError: An object, or its framework, failed on its value.
        """
        match = self._match(0, root, attached)
        self.begins_at(root)
        try:
            self._run(match)
        except MismatchError as error:
            with suppress(MilepostError):  # what does not fit is known, whatever the rest says of itself
                error.report = error.report and self._report_of_refused(error.report, match, root, attached)
            raise
        self.may_lack = match.may_lack or bool(match.missing)
        self.deferred.release_if_unneeded()

    @places_in_use()
    def settle(self, node: int, child: Any, *, superseded: bool = False) -> Any:
        """Restores an object that came after the restore, from the node that was deferred for it; errors as for `restore`.

        Args:
            node: The node.
            child: The object.
            superseded: Whether a newer restore has given the object its values, and this one is to know of it alone.

        Returns:
            The object to be held: ``child``, or its successor if it cannot change.
        """
        bound = self._bound[node]
        if bound is child and last_restore(child) >= self.uid:
            return child  # It has come by another name before.
        if bound is not None:
            if superseded:
                return child
            warn(
                f"{self.reader.prefix}: two live objects stand where one was saved ({self._describe(node)}); "
                "only the first took its values",
                UnrestoredWarning,
            )
            return child
        match = self._match(node, child)
        if superseded:
            match.undo()
            for take in match.takes:
                match.unused[take.node] = {value.name for value, _ in take.values}
            match.takes, match.deferred = [], []
            self._remember(match, (), {})
            return child
        successor = self._run(match).get(id(child), child)
        if self.partial_expected:
            self.reader.release(for_good=False)  # The files were opened again for this object.
        return successor

    def matched_nothing(self) -> bool:
        """Whether no live object but the root was found."""
        return self.bound_count() <= 1

    def took_no_values(self) -> bool:
        """Whether no live object but the `save_counter`, which every restore makes, has taken values from the checkpoint."""
        counters = {edge.node for edge in self.graph.nodes[0].children if edge.name == SAVE_COUNTER}
        return not any(self.graph.nodes[node].values for node in self._bound if node not in counters)

    @places_in_use()
    def missing(self, root: Any, attached: Sequence[tuple[str, Any]]) -> list[Entry]:
        """Live values that the checkpoint has nothing for, and that no restore has given a value."""
        return [entry for entry in self._account_of_live(root, attached, only_unrestored=True) if not entry.foreign]

    def unwatch(self) -> None:
        super().unwatch()
        if self.deferred.any_superseded:
            stop_waiting(self.uid, superseded_only=True)

    def bound(self, node: int) -> Any:
        """The live object that took a node, or None."""
        return self._bound[node]

    def exchange(self, others: Mapping[int, Any]) -> None:
        """Has other objects stand for live ones that took nodes, given by the identity of these."""
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
        """All keys that files hold for the object of this value."""
        return self._matcher.stored_keys(value)

    def specs(self, node: int) -> Mapping[str, TensorSpec]:
        """Element types and shapes of a node's values, by local name."""
        return self._matcher.specs(node)

    def is_settled(self, node: int) -> bool:
        """Whether live objects have taken all values of a node and of what lies below it."""
        nodes, seen = [node], {node}
        for number in nodes:
            if self._bound[number] is not None:
                continue  # what is deferred below it is deferred on that object
            saved = self.graph.nodes[number]
            if saved.values or saved.slots:
                return False
            below = {edge.node for edge in saved.children} - seen
            seen |= below
            nodes += below
        return True

    def bound_count(self) -> int:
        """How many saved nodes found a live object."""
        return len(self._bound)

    def _match(self, node: int, obj: Any, attached: Sequence[tuple[str, Any]] = ()) -> Match:
        try:
            return self._matcher.match(node, obj, attached)
        except Exception as error:
            raise_explained(error, self.reader.prefix, complete=True)

    def _run(self, match: Match) -> dict[int, Any]:
        undo = Undo()
        told: list[tuple[Adapter, Any]] = []
        undo.add(partial(_tell_again, told))  # last, when all objects have their old values
        if match.made_slots:
            undo.add(match.undo)
        try:
            check(self.reader, match.takes)
            if match.deferred:
                self.reader.hold()
            successors = deliver(self.reader, match.takes, list(match.bindings.values()), undo, match.growth)
            takers = [successors.get(id(take.obj), take.obj) for take in match.takes]
            before = [(obj, last_restore(obj)) for obj in takers]
            positions: list[RestoredPosition] = []
            undo.add(partial(self._forget, match, before, positions))
            self._remember(match, takers, successors)
            if match.deferred:
                self._defer_rest(match, successors, positions)
            for node, obj in match.bindings.items():
                adapter = match.adapters[node]
                if "on_restored" in adapter.overrides:
                    told.append((adapter, obj))
                    adapter.on_restored(obj)
        except BaseException as error:
            raise_explained(error, self.reader.prefix, complete=undo.run())
        self._supersede(match)
        return successors

    @collection_paused()
    def _remember(self, match: Match, takers: Sequence[Any], successors: Mapping[int, Any]) -> None:
        for node, obj in match.bindings.items():
            self._bound[node] = successors.get(id(obj), obj)
        for taker in takers:
            remember_restore(taker, self.uid, self._kept)
        self._unused.update((node, frozenset(names)) for node, names in match.unused.items())
        self._missing.update((node, frozenset(names)) for node, names in match.missing.items())
        self._lacking.update((id(obj), reference_to(obj)) for obj in match.lacking)

    def _forget(self, match: Match, before: Sequence[tuple[Any, int]], positions: list[RestoredPosition]) -> None:
        withdraw(positions)
        positions.clear()
        for obj, uid in before:
            undo_remembering(obj, self.uid, uid)
        for node in match.bindings:
            del self._bound[node]
            self._unused.pop(node, None)
            self._missing.pop(node, None)
        for obj in match.lacking:
            self._lacking.pop(id(obj), None)

    def _defer_rest(self, match: Match, successors: Mapping[int, Any], positions: list[RestoredPosition]) -> None:
        # All are made first: files are closed when none is left.
        made = [
            RestoredPosition(self, each.node, each.variable, each.siblings, is_late=match.is_late)
            for each in match.deferred
        ]
        for each, position in zip(match.deferred, made, strict=True):
            holder = successors.get(id(each.holder), each.holder)
            if defer(holder, each.name, position):
                positions.append(position)
                adapter = adapter_of(holder)
                if adapter is not None:
                    adapter.on_deferred(holder)

    def _supersede(self, match: Match) -> None:
        """Tells older restores that defer values on the same objects what this one has given these, or defers."""
        for node, obj in match.bindings.items():
            if deferred_on(obj):
                saved, adapter = self.graph.nodes[node], match.adapters[node]
                aliases = adapter.aliases(obj) if "aliases" in adapter.overrides else {}
                names: set[str | SlotKey] = {edge.name for edge in saved.children}
                names |= {aliases[edge.name] for edge in saved.children if edge.name in aliases}
                names |= {(id(self._bound[variable]), name) for variable, name, _ in saved.slots}
                supersede(obj, names, self.uid)

    @places_in_use()
    def report(self, root: Any, attached: Sequence[tuple[str, Any]] = ()) -> Report:
        """An account of every saved value, and of every live value reachable from ``root`` now."""
        look_again_below(root, attached)
        self._follow_exchanges()
        entries = [*self._account_of_saved(self._deferred_nodes()), *self._account_of_live(root, attached)]
        return sorted_report(self.reader.prefix, entries)

    def _follow_exchanges(self) -> None:
        """Binds what has been exchanged since it was restored: buffers, say, and slot variables, to what is there now."""
        for node in self._bound:
            obj = self._bound[node]
            adapter = adapter_of(obj)
            if adapter is None or adapter.leaf:
                continue
            saved = self.graph.nodes[node]
            names = adapter.exchanged(obj) if "exchanged" in adapter.overrides else ()
            children = dict(live_children(adapter, obj)) if names else {}
            for name, child in saved.children:
                if name in names and name in children and child in self._bound:
                    self._bound[child] = children[name]
            for variable, name, slot in saved.slots:
                if slot in self._bound and (present := adapter.slot(obj, self._bound[variable], name)) is not None:
                    self._bound[slot] = present

    def _account_of_saved(self, deferred: Collection[int]) -> list[Entry]:
        entries = []
        for number, node in enumerate(self.graph.nodes):
            if self._is_skipped(number):
                continue
            obj = self._bound[number]
            for value, key in self._matcher.values_in_file(number):
                saved = str(self.reader.spec(key)) if key in self.reader else ""
                if obj is not None and unescape(value.name) not in self._unused.get(number, _NONE):
                    entries.append(Entry(Outcome.MATCHED, key, saved, saved))
                elif obj is None and number in deferred:
                    entries.append(Entry(Outcome.DEFERRED, key, saved))
                else:
                    note = "its object no longer exists" if number in self._bound else ""
                    if obj is not None:
                        note = f"the live object, a {type(obj).__name__}, holds no such value"
                    entries.append(Entry(Outcome.UNEXPECTED, key, saved, note=note))
            if node.saver:
                note = f"written by the custom saver {node.saver!r}, which milepost does not know"
                entries.append(Entry(Outcome.UNEXPECTED, self._describe(number), note=note))
        return entries

    def _account_of_live(
        self, root: Any, attached: Sequence[tuple[str, Any]], *, only_unrestored: bool = False
    ) -> list[Entry]:
        bound = {id(obj) for node in self._bound if (obj := self._bound[node]) is not None}
        missing = {id(self._bound[node]): names for node, names in self._missing.items()}
        live = walk(root, attached, slots=not self._skip_slots, omissions=True)
        private, plain = self.graph.writer_saves()
        later = self._later_members(live, bound)
        entries = unsaveable(live.omissions, self._allow_unsaved)
        for number, values in live.values():
            identity = id(obj := live.objects[number])
            path = live.paths[number]
            is_own = not self._is_lacking(obj) and (came_later(obj, bound) or path in later)
            if identity not in bound and (is_own or path in self._never_saved):
                continue
            if only_unrestored and (last_restore(obj) > self.uid or live.paths[number] == SAVE_COUNTER):
                continue
            if is_at_or_below(live.paths[number], self._allow_unsaved):
                continue
            for value in values:
                if identity not in bound or value.name in missing.get(identity, _NONE):
                    key = tensor_key(live.paths[number], value.name)
                    # TensorFlow saves no trees of JAX's at all: text that such a tree holds was left out by its writer.
                    saved = type(obj) is CheckedLeaf or (plain if isinstance(obj, Place) else private)
                    foreign = not saved and (value.skipped_by_tensorflow or number in live.skipped_by_tensorflow)
                    note = "TensorFlow saves no such values" if foreign else ""
                    entries.append(Entry(Outcome.MISSING, key, "", live_spec(value), note, foreign))
        return entries

    def _is_lacking(self, obj: Any) -> bool:
        """Whether an object was there when it was restored, and nothing was saved for it."""
        reference = self._lacking.get(id(obj))
        return reference is not None and reference() is obj

    def _later_members(self, live: LiveGraph, bound: Collection[int]) -> Subtrees:
        """Paths of what lists of values have got since they were restored, which is the program's own."""
        lists = {id(self._bound[node]) for node in self._bound if self.graph.nodes[node].python == "list"}
        return Subtrees(
            live.paths[edge.node]
            for number, obj in enumerate(live.objects)
            if lists and id(obj) in lists
            for edge in live.edges[number]
            if id(live.objects[edge.node]) not in bound and not self._is_lacking(live.objects[edge.node])
        )

    def _deferred_nodes(self) -> set[int]:
        """Nodes that an object may still take: deferred ones, what lies below them, and slots of both."""
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

    def _report_of_refused(
        self, misfits: Report, match: Match, root: Any, attached: Sequence[tuple[str, Any]]
    ) -> Report:
        """What does not fit, and what would have been left over on either side."""
        before = [(take.obj, last_restore(take.obj)) for take in match.takes]
        self._remember(match, [obj for obj, _ in before], {})
        try:
            saved = self._account_of_saved(self._with_below(each.node for each in match.deferred))
            live = self._account_of_live(root, attached)
        finally:
            self._forget(match, before, [])
        named = {entry.key for entry in misfits}
        others = [each for each in (*saved, *live) if each.outcome is not Outcome.MATCHED and each.key not in named]
        return sorted_report(self.reader.prefix, [*misfits, *others])

    def _describe(self, node: int) -> str:
        values = self.graph.nodes[node].values
        return self._matcher.keys_in_file(values[0])[0] if values else f"node {node} of the object graph"

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self.warn_of_unused()

    def warn_of_unused(self) -> None:
        """Warns of values that nothing ever took, once."""
        if self.partial_expected or self._has_warned or not self._bound:
            return
        self._has_warned = True
        lost = [
            key
            for number in range(len(self.graph.nodes))
            if not self._is_skipped(number)
            for value, key in self._matcher.values_in_file(number)
            if number not in self._bound or unescape(value.name) in self._unused.get(number, _NONE)
        ]
        if lost:
            warn(
                f"{self.reader.prefix}: {counted(len(lost), 'saved value')} {'was' if len(lost) == 1 else 'were'} never given to any object "
                f"(call expect_partial() on the status if that is intended):{unasked.listed(lost)}",
                UnrestoredWarning,
                self.place,
            )
