"""One restore of an object-based checkpoint: match, check, deliver, remember.

The first two steps change nothing, and delivering cannot fail halfway for any reason that can be known before it, so
a restore that fails has changed nothing. What no live object takes waits (`milepost.graph.waiting`) on the object
that will hold it, and goes through the same four steps when it comes.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.engine.collector import collection_paused
from milepost.engine.deliver import check, deliver, live_spec
from milepost.engine.identity import Kept, Reference, reference_to, remember_restore
from milepost.engine.match import Match, Matcher
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import RestorePlan
from milepost.engine.report import Entry, Outcome, Report
from milepost.errors import UnrestoredWarning, warn
from milepost.graph.adapter import adapter_of
from milepost.graph.keys import tensor_key, unescape
from milepost.graph.look_again import look_again_below
from milepost.graph.object_graph import ObjectGraph, SavedValue
from milepost.graph.places import places_in_use
from milepost.graph.traversal import live_children, walk
from milepost.graph.waiting import wait
from milepost.tensor import TensorSpec

_uids: Final = itertools.count(1)
_MOST_LISTED: Final = 10


def next_uid() -> int:
    """The number of a new restore. Later ones win over earlier ones."""
    return next(_uids)


class RestoredPosition:
    """A saved node that waits for its object; see `milepost.graph.waiting`."""

    __slots__ = ("__weakref__", "node", "restoration", "variable")

    def __init__(self, restoration: Restoration, node: int, variable: Any) -> None:
        self.restoration = restoration
        self.node = node
        self.variable = variable  # kept: a slot waits under its variable's identity, which must stay its own

    @property
    def uid(self) -> int:
        return self.restoration.uid

    def peek(self) -> Any:
        values = self.restoration.graph.nodes[self.node].values
        return self.restoration.reader.read(values[0].key) if len(values) == 1 else None

    def specs(self) -> Mapping[str, TensorSpec]:
        return self.restoration.specs(self.node)

    def is_settled(self) -> bool:
        return self.restoration.is_settled(self.node)

    def settle(self, name: Any, child: Any) -> Any:
        return self.restoration.settle(self.node, child)


class Restoration:
    """One restore of an object-based checkpoint, for as long as anybody asks about it or waits for it.

    Args:
        reader: The open checkpoint.
        graph: Its object graph.
        options: Whether slot variables are skipped.
        never_saved: Names below the root that files of this kind never have, so that none lacks them.

    Attributes:
        uid: Its number; later restores win.
        reader: The open checkpoint.
        graph: Its object graph.
        partial_expected: Whether values that nothing ever took are no reason to warn.
    """

    def __init__(
        self,
        reader: BundleReader,
        graph: ObjectGraph,
        options: CheckpointOptions,
        never_saved: Collection[str] = (),
    ) -> None:
        self.uid = next_uid()
        self._never_saved = never_saved
        self.reader = reader
        self.partial_expected = False
        self.graph = graph
        self._skip_slots = options.experimental_skip_slot_variables
        self._bound: dict[int, Reference] = {}
        self._kept = Kept(self.uid)
        self._unused: dict[int, set[str]] = {}
        self._missing: dict[int, list[str]] = {}
        self._positions: weakref.WeakSet[RestoredPosition] = weakref.WeakSet()
        self._matcher = Matcher(reader, graph, self.uid, self.bound, skip_slots=self._skip_slots)

    @places_in_use()
    def plan(self, root: Any, attached: Sequence[tuple[str, Any]] = ()) -> RestorePlan:
        """What restoring into ``root`` would read and leave waiting; changes nothing."""
        match = self._matcher.match(0, root, attached)
        match.undo()
        return match.plan()

    @places_in_use()
    def restore(self, root: Any, attached: Sequence[tuple[str, Any]] = ()) -> None:
        """Restores everything reachable from ``root``, which stands for node 0, and lets the rest wait.

        Args:
            root: The live root.
            attached: More edges of the root, after its own.

        Raises:
            MismatchError: A saved value does not fit the live object; nothing was changed.
            CorruptCheckpointError: The checkpoint is damaged; nothing was changed.
            StorageError: It could not be read.
        """
        self._run(self._matcher.match(0, root, attached))

    @places_in_use()
    def settle(self, node: int, child: Any) -> Any:
        """Restores a late object from the node that waited for it; errors as for `restore`.

        Returns:
            The object to be held: ``child``, or its successor if it cannot change.
        """
        bound = self.bound(node)
        if bound is not None and bound is not child:
            warn(
                f"{self.reader.prefix}: two live objects stand where one was saved ({self._describe(node)}); "
                "only the first took its values",
                UnrestoredWarning,
            )
            return child
        return self._run(self._matcher.match(node, child)).get(id(child), child)

    def bound(self, node: int) -> Any:
        """The live object that took a node, or None."""
        reference = self._bound.get(node)
        return reference() if reference is not None else None

    def specs(self, node: int) -> Mapping[str, TensorSpec]:
        """Element types and shapes of a node's values, by local name."""
        return self._matcher.specs(node)

    def stored_keys(self, value: SavedValue) -> list[str]:
        """All keys that files hold for the object of a value, where the graph lists others."""
        return self._matcher.stored_keys(value)

    def is_settled(self, node: int) -> bool:
        """Whether live objects have taken all values of a node and of what lies below it."""
        nodes, seen = [node], {node}
        for number in nodes:
            if self.bound(number) is not None:
                continue  # what waits below it waits on that object
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

    def _run(self, match: Match) -> dict[int, Any]:
        try:
            check(self.reader, match.takes)
            if match.waits:
                self.reader.hold()
            successors = deliver(self.reader, match.takes, list(match.bindings.values()))
        except BaseException:
            match.undo()
            raise
        self._remember(match, successors)
        for obj in match.bindings.values():
            adapter = adapter_of(obj)
            if adapter is not None:
                adapter.settled(obj)
        return successors

    @collection_paused()
    def _remember(self, match: Match, successors: Mapping[int, Any]) -> None:
        for node, obj in match.bindings.items():
            self._bound[node] = reference_to(successors.get(id(obj), obj))
        for take in match.takes:
            remember_restore(successors.get(id(take.obj), take.obj), self.uid, self._kept)
        self._unused.update(match.unused)
        self._missing.update(match.missing)
        for waiting in match.waits:
            position = RestoredPosition(self, waiting.node, waiting.variable)
            holder = successors.get(id(waiting.holder), waiting.holder)
            if wait(holder, waiting.name, position):
                self._positions.add(position)
                adapter = adapter_of(holder)
                if adapter is not None:
                    adapter.watch(holder)

    @places_in_use()
    def report(self, root: Any, attached: Sequence[tuple[str, Any]] = ()) -> Report:
        """An account of every saved value, and of every live value reachable from ``root`` now."""
        look_again_below(root, attached)
        self._follow_exchanges()
        entries = [*self._account_of_saved(), *self._account_of_live(root, attached)]
        order = list(Outcome)
        entries.sort(key=lambda entry: (order.index(entry.outcome), entry.key))
        return Report(self.reader.prefix, tuple(entries))

    def _follow_exchanges(self) -> None:
        """Binds what has been exchanged since it was restored: buffers, say, and slot variables, to what is there now."""
        for node in list(self._bound):
            obj = self.bound(node)
            adapter = adapter_of(obj)
            if adapter is None or adapter.leaf:
                continue
            saved = self.graph.nodes[node]
            names = adapter.exchanged(obj)
            children = dict(live_children(adapter, obj)) if names else {}
            for name, child in saved.children:
                if name in names and name in children and child in self._bound:
                    self._bound[child] = reference_to(children[name])
            for variable, name, slot in saved.slots:
                if slot in self._bound and (present := adapter.slot(obj, self.bound(variable), name)) is not None:
                    self._bound[slot] = reference_to(present)

    def _account_of_saved(self) -> list[Entry]:
        waiting = self._waiting_nodes()
        entries = []
        for number, node in enumerate(self.graph.nodes):
            if self._is_skipped(number):
                continue
            obj = self.bound(number)
            for value in node.values:
                saved = str(self.reader.spec(value.key)) if value.key in self.reader else ""
                if obj is not None and unescape(value.name) not in self._unused.get(number, ()):
                    entries.append(Entry(Outcome.MATCHED, value.key, saved, saved))
                elif obj is not None:
                    note = f"the live object, a {type(obj).__name__}, holds no such value"
                    entries.append(Entry(Outcome.UNEXPECTED, value.key, saved, note=note))
                elif number in waiting:
                    entries.append(Entry(Outcome.DEFERRED, value.key, saved))
                else:
                    note = "its object no longer exists" if number in self._bound else ""
                    entries.append(Entry(Outcome.UNEXPECTED, value.key, saved, note=note))
            if node.saver:
                note = f"written by the custom saver {node.saver!r}, which milepost does not know"
                entries.append(Entry(Outcome.UNEXPECTED, self._describe(number), note=note))
        return entries

    def _account_of_live(self, root: Any, attached: Sequence[tuple[str, Any]]) -> list[Entry]:
        bound = {id(obj) for node in self._bound if (obj := self.bound(node)) is not None}
        missing = {id(self.bound(node)): names for node, names in self._missing.items()}
        live = walk(root, attached, slots=not self._skip_slots)
        own = any(value.private for node in self.graph.nodes for value in node.values)
        entries = []
        for number, values in live.values():
            identity = id(live.objects[number])
            if identity not in bound and live.paths[number] in self._never_saved:
                continue
            for value in values:
                if identity not in bound or value.name in missing.get(identity, ()):
                    key = tensor_key(live.paths[number], value.name)
                    foreign = not own and (value.private or live.is_private(number))
                    note = "TensorFlow saves no such values" if foreign else ""
                    entries.append(Entry(Outcome.MISSING, key, "", live_spec(value), note, foreign))
        return entries

    def _waiting_nodes(self) -> set[int]:
        """Nodes that an object may still take: those that wait, what lies below them, and slots of both."""
        nodes = [position.node for position in self._positions]
        waiting = set(nodes)
        for node in nodes:
            for edge in self.graph.nodes[node].children:
                if edge.node not in waiting and self.bound(edge.node) is None:
                    waiting.add(edge.node)
                    nodes.append(edge.node)
        for variable, slots in self._matcher.slots_of_variable.items():
            for owner, _, slot in slots:
                may_come = owner in waiting or self._may_make_slots(owner)
                if may_come and (variable in waiting or variable in self._bound):
                    waiting.add(slot)
        return waiting

    def _may_make_slots(self, node: int) -> bool:
        owner = self.bound(node)
        adapter = adapter_of(owner)
        return adapter is not None and adapter.has_slots(owner)

    def _is_skipped(self, node: int) -> bool:
        return self._skip_slots and node in self._matcher.slot_nodes

    def _describe(self, node: int) -> str:
        values = self.graph.nodes[node].values
        return values[0].key if values else f"node {node} of the object graph"

    def __del__(self) -> None:
        if self.partial_expected or sys.is_finalizing() or not self._bound:
            return
        lost = [
            value.key
            for number, node in enumerate(self.graph.nodes)
            if not self._is_skipped(number)
            for value in node.values
            if number not in self._bound or unescape(value.name) in self._unused.get(number, ())
        ]
        if lost:
            listed = "\n  ".join(lost[:_MOST_LISTED])
            more = f"\n  and {len(lost) - _MOST_LISTED} more" if len(lost) > _MOST_LISTED else ""
            warn(
                f"{self.reader.prefix}: {len(lost)} saved values were never given to any object "
                f"(call expect_partial() on the status if that is intended):\n  {listed}{more}",
                UnrestoredWarning,
            )
