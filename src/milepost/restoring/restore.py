"""One restore of an object-based checkpoint: match, check, deliver, remember.

The first two steps change nothing, and a failure after them is undone (`milepost.restoring.undo`). So a restore that fails has
changed nothing. A saved node without a live object is deferred (`milepost.deferred.table`) on the object that will hold it. Its object
goes through the same four steps when it is made.

Files stay open as long as something is deferred that no newer restore supersedes. There are no reference cycles here, so a
restore without a status and without deferred values is freed at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.bundle import BundleReader, CastingReader
from milepost.collector import QUICK, collection_paused
from milepost.deferred.position import RestoredPosition
from milepost.deferred.table import (
    SlotKey,
    defer,
    deferred_on,
    is_anything_deferred,
    supersede,
)
from milepost.engine import unasked
from milepost.engine.options import CheckpointOptions
from milepost.engine.progress import Reporter, reporting
from milepost.engine.report import Entry, Outcome, Report, sorted_report
from milepost.engine.translation import UNTRANSLATED, Translated
from milepost.errors import MilepostError, MismatchError, UnrestoredWarning, warn
from milepost.graph.adapter import Adapter, adapter_of, adapter_of_type
from milepost.graph.contract.operation import Operation
from milepost.graph.object_graph import ObjectGraph
from milepost.graph.omissions import is_at_or_below
from milepost.graph.traversal import walk
from milepost.restoring.check import cast, check_variables
from milepost.restoring.deliver import deliver
from milepost.restoring.identity import last_restore
from milepost.restoring.match import Match
from milepost.restoring.matched_restore import MatchedRestore
from milepost.restoring.own_loading import load_by_own_code, noted_versions
from milepost.restoring.reshaped import check_reshaped
from milepost.restoring.undo import Undo, raise_explained
from milepost.restoring.unsaved_slots import located, remove

if TYPE_CHECKING:
    from milepost.distributed.rounds import Rounds


def _to_tell(objs: Sequence[Any]) -> Iterator[tuple[Adapter, Any]]:
    """The objects that are told when they have been restored, each after its adapter."""
    telling: dict[type, Adapter] = {}
    for kind in set(map(type, objs)):
        adapter = adapter_of_type(kind)
        if adapter is not None and "on_restored" in adapter.overrides:
            telling[kind] = adapter
    return ((telling[type(obj)], obj) for obj in objs if type(obj) in telling) if telling else iter(())


def _tell_again(told: Sequence[tuple[Adapter, Any]]) -> None:
    """Tells objects again that their values have changed, so that they compute what depends on them."""
    for adapter, obj in told:
        with suppress(Exception):  # an error of one of them is why the restore failed
            adapter.on_restored(obj)


class Restoration(MatchedRestore):
    """One restore of an object-based checkpoint. It lives as long as its status, or as long as a value is deferred.

    Args:
        reader: The open checkpoint.
        graph: Its object graph.
        options: Whether slot variables are skipped, what may be left out, who is told of the progress, and whether all values are
            verified first.
        never_saved: As for `MatchedRestore`.
        rounds: The rounds of the operation, if several processes restore together.
        translated: As for `MatchedRestore`.
    """

    def __init__(
        self,
        reader: BundleReader,
        graph: ObjectGraph,
        options: CheckpointOptions,
        never_saved: Collection[str] = (),
        rounds: Rounds | None = None,
        translated: Translated = UNTRANSLATED,
    ) -> None:
        member = (0, 1) if rounds is None else (rounds.rank, rounds.size)
        super().__init__(reader, graph, options, never_saved, member, translated)
        self._rounds = rounds
        self._progress = options.progress
        self._verify_first = options.verify_first

    def restore(self, operation: Operation, pause: collection_paused) -> None:
        """Restores everything reachable from the root of the operation, which matches node 0, and defers the rest.

        Args:
            operation: The restore.
            pause: As for `_run`.

        Raises:
            MismatchError: A saved value does not fit its live object. Nothing was changed.
            CorruptCheckpointError: The checkpoint is damaged. Nothing was changed.
            StorageError: The checkpoint cannot be read.
            RefusedError: An object or its framework raised an error for a value.
        """
        match = self._matcher.match(operation, 0, operation.root, operation.attached)
        try:
            self._find_removed(match, operation)
            self.begins_at(operation.root)
            rounds = self._rounds
            agree = None if rounds is None else rounds.agree  # all processes change their objects, or none does
            with reporting(
                self._progress, "restore", self.reader.prefix, leads=rounds is None or rounds.leads
            ) as progress:
                self._run(operation, match, pause, agree, progress)
                if progress is not None:
                    progress.finish()
        except MismatchError as error:
            with suppress(MilepostError):  # the error is complete without the rest of the report
                error.report = error.report and self._report_of_refused(error.report, match, operation)
            raise
        except BaseException:
            match.undo()  # if Ctrl-C comes before or after the part that undoes itself
            raise
        self.may_lack = match.may_lack or bool(match.missing)
        self.deferred.release_if_unneeded()
        self._find_stayed(match.stepped, operation)
        self._warn_of_stayed(operation)

    def settle(self, operation: Operation, node: int, child: Any, *, superseded: bool = False) -> Any:
        """Restores an object that was made after the restore from its deferred node. Errors are those of `restore`.

        Args:
            operation: The operation in which the object has come.
            node: The node.
            child: The object.
            superseded: Whether a newer restore has assigned the values. Then this one only records the object.

        Returns:
            The object to hold: ``child``, or its successor if it cannot change.
        """
        bound = self._bound[node]
        if bound is child and last_restore(child) >= self.uid:
            return child  # The object has come under another name before.
        if bound is not None:
            if superseded:
                return child
            warn(
                f"{self.reader.prefix}: two live objects match one saved object ({self._describe(node)}), and only the first got "
                "the values: use one object in both places, like the program that saved the checkpoint",
                UnrestoredWarning,
            )
            return child
        follows = self._matcher.slot_nodes and self._has_slots_below(node)
        replaced = self._follow_converted(operation) if follows else []
        if not self.graph.nodes[node].children:
            # The match makes so few objects that a pause is not worth while.
            successor = self._settle(operation, node, child, None, superseded=superseded)
        else:
            with collection_paused() as pause:
                successor = self._settle(operation, node, child, pause, superseded=superseded)
        if superseded:
            return child
        if self.partial_expected:
            self.reader.release(for_good=False)  # The files were opened again for this object.
        elif replaced:
            self._warn_of_replaced(node, replaced)
        return successor

    def _settle(
        self, operation: Operation, node: int, child: Any, pause: collection_paused | None, *, superseded: bool
    ) -> Any:
        match = self._matcher.match(operation, node, child)
        if superseded:
            match.undo()
            for take in match.takes:
                match.unused[take.node] = {value.name for value, _ in take.values}
            match.takes, match.deferred = [], []
            self._remember(match, (), {})
            return child
        bound = {id(obj) for _, obj in self._bound.living()} if match.unsaved else ()
        match.unsaved = [each for each in match.unsaved if id(each.variable) in bound]
        return self._run(operation, match, pause).get(id(child), child)

    def _versions(self, node: int) -> Mapping[str, Any] | None:
        """What was noted of the saved object of a node and of those below it; see `SavedState.versions`."""
        return noted_versions(self.graph, node)

    def _kept(self, operation: Operation) -> Collection[int]:
        """The identities of the live objects that the arguments leave alone."""
        translation = self._translated.translation
        if not (translation.selects or translation.kept):
            return ()
        live = walk(operation, slots=False)
        return {id(obj) for obj, path in zip(live.objects, live.paths, strict=True) if translation.leaves_alone(path)}

    def _holds_slots(self, node: int) -> bool:
        """Whether the file has all slot variables that a saved optimizer had."""
        return True

    def _find_removed(self, match: Match, operation: Operation) -> None:
        """Finds which of the slot variables that the checkpoint lacks are to be removed, and which the arguments leave alone."""
        unsaved = [each for each in match.unsaved if self._holds_slots(each.node)]
        match.unsaved = []
        if not unsaved:
            return
        bound = {id(obj) for obj in match.bindings.values()} | {id(None)}
        whole = {node for node in {each.node for each in unsaved} if self._is_whole(node, match)}
        unsaved = [each for each in unsaved if each.node in whole or id(each.variable) in bound]
        try:
            for each, path in located(unsaved, operation):
                if not (self._translated.leaves_alone(path) or is_at_or_below(path, self._allow_unsaved)):
                    match.unsaved.append(each)
        except BaseException as error:
            match.undo()
            raise_explained(error, self.reader.prefix, complete=True)

    def _is_whole(self, node: int, match: Match) -> bool:
        """Whether an optimizer has all variables of its saved slot variables. Otherwise another live variable may be one of them."""
        slots = self.graph.nodes[node].slots
        return not self._translated.renames_slots_away and all(slot.variable in match.bindings for slot in slots)

    def unsettle(self, node: int) -> None:
        """Forgets the object that `settle` has restored from a node, because nothing holds it."""
        del self._bound[node]

    def _has_slots_below(self, node: int) -> bool:
        """Whether a node or one below it is an optimizer with saved slot variables."""
        if self._skip_slots:
            return False
        nodes, seen = [node], {node}
        for number in nodes:
            if self.graph.nodes[number].slots:
                return True
            below = {edge.node for edge in self.graph.nodes[number].children} - seen
            seen |= below
            nodes += below
        return False

    def _warn_of_replaced(self, optimizer: int, replaced: Sequence[int]) -> None:
        """Warns of slot variables for which an optimizer has other variables than those that were restored."""
        slots = {variable: slot for variable, _, slot in self.graph.nodes[optimizer].slots if variable in replaced}
        if slots:
            warn(
                f"{self.reader.prefix}: an optimizer was made for other parameters than those that were restored, so it does not "
                f"get its saved state: DTensors with other values have replaced them. Restore after fully_shard() or parallelize_module(), or "
                f"change no values before you make the optimizer:{unasked.listed([self.first_key(each) for each in slots.values()])}",
                UnrestoredWarning,
            )

    def _run(
        self,
        operation: Operation,
        match: Match,
        pause: collection_paused | None,
        agree: Callable[[], object] | None = None,
        progress: Reporter | None = None,
    ) -> dict[int, Any]:
        """Checks and delivers what was matched.

        Args:
            operation: The restore, or the operation in which the objects came.
            match: The match.
            pause: Keeps the garbage collector from running, if it is not None. It ends early if there is much to read, or if objects run code of
                their own to take a value.
            agree: Called when everything that can be checked beforehand is checked, and again when all objects have their
                values. If it raises an error, they get their old values.
            progress: Counts the bytes of the values; None if there is no progress function.

        Returns:
            Successors of objects that cannot change, by the identity of the object that each replaces.
        """
        undo = Undo()
        told: list[tuple[Adapter, Any]] = []
        undo.add(partial(_tell_again, told))  # undone last, when all objects have their old values
        if match.made_slots:
            undo.add(match.undo)
        try:
            if isinstance(self.reader, CastingReader):
                cast(self.reader, match.takes, self._translated.translation)
            holders = match.holders() if match.copies else list(match.bindings.values())
            size = check_reshaped(operation, self.reader, match, holders, self._translated.translation, self.graph)
            if self._translated.variables:
                check_variables(operation, self.reader, match.bindings, self._translated)
            if pause is not None and size > QUICK:
                pause.end()
            if match.deferred:
                self.reader.hold()
            given = match.growth, agree, None if pause is None else pause.end, progress, match.fresh
            successors = deliver(
                operation, self.reader, match.takes, holders, undo, *given, verify_first=self._verify_first
            )
            if len(match.bindings) > 1 or match.deferred:
                kept = partial(self._kept, operation)
                load_by_own_code(self.reader, self.graph, match, self._bound, undo, self._versions, kept)
            if match.unsaved:
                remove(match.unsaved, undo)
            takers = [take.obj for take in match.takes]
            if successors:
                takers = [successors.get(id(obj), obj) for obj in takers]
            match.takes = []  # they take as much memory as what is remembered
            before: list[int] = []
            positions: list[RestoredPosition] = []
            undo.add(partial(self._forget, match, takers, before, positions))
            self._remember(match, takers, successors, before)
            crowded = self._defer_rest(match, successors, positions) if match.deferred else ()
            for adapter, obj in _to_tell(holders):
                told.append((adapter, obj))
                adapter.on_restored(obj)
            if agree is not None:
                agree()
        except BaseException as error:
            raise_explained(error, self.reader.prefix, complete=undo.run())
        match.made_slots = []  # they stay, also if Ctrl-C comes now
        self._supersede(match, crowded)
        return successors

    def _defer_rest(
        self, match: Match, successors: Mapping[int, Any], positions: list[RestoredPosition]
    ) -> list[tuple[Any, str | SlotKey]]:
        """Defers what was not matched. Returns the holders and names at which an older restore has deferred something too."""
        crowded: list[tuple[Any, str | SlotKey]] = []
        # All positions are made first, because files are closed when none is left, and noted first, so that all can be withdrawn.
        positions += [
            RestoredPosition(self, each.node, each.variable, each.siblings, is_late=match.is_late)
            for each in match.deferred
        ]
        for each, position in zip(match.deferred, positions, strict=True):
            holder = successors.get(id(each.holder), each.holder)
            count = defer(holder, each.name, position)
            if count:
                if count > 1:
                    crowded.append((holder, each.name))
                adapter = adapter_of(holder)
                if adapter is not None:
                    adapter.on_deferred(holder)
        return crowded

    def _supersede(self, match: Match, crowded: Sequence[tuple[Any, str | SlotKey]]) -> None:
        """Supersedes the positions of older restores for the children that this one has matched or deferred."""
        for holder, name in crowded:
            supersede(holder, (name,), self.uid)
        for node, obj in match.bindings.items() if is_anything_deferred() else ():
            if deferred_on(obj):
                saved, adapter = self.graph.nodes[node], adapter_of_type(type(obj))
                aliases = adapter.aliases(obj) if adapter is not None and "aliases" in adapter.overrides else {}
                names: set[str | SlotKey] = {edge.name for edge in saved.children}
                names |= {aliases[edge.name] for edge in saved.children if edge.name in aliases}
                names |= {(id(self._bound[variable]), name) for variable, name, _ in saved.slots}
                if not self._skip_slots:
                    names |= self._deferred_slots_of_bound(obj)
                if adapter is not None and adapter.saved_whole and not self._translated.left_out:
                    names |= deferred_on(obj).keys()
                supersede(obj, names, self.uid)

    def _deferred_slots_of_bound(self, owner: Any) -> set[SlotKey]:
        """The slot variables that any restore has deferred on an optimizer, of the variables that this one has bound."""
        deferred = {
            name: found[0].variable for name, found in deferred_on(owner).items() if type(name) is tuple and found
        }
        bound = {id(obj) for _, obj in self._bound.living()} if deferred else ()
        return {name for name, variable in deferred.items() if id(variable) in bound}

    def preview(self, operation: Operation) -> Report:
        """The report that `restore` would give. No object changes, and no value is read, except to compare two of one live object.

        Args:
            operation: The restore that is tried.

        Raises:
            CorruptCheckpointError: The checkpoint lacks a value that its object graph names.
            MilepostError: A live object does not say what it holds, or an optimizer cannot make a slot variable.
        """
        match = self._matcher.match(operation, 0, operation.root, operation.attached)
        self._find_removed(match, operation)
        misfits = Report(self.reader.prefix, ())
        try:
            try:
                if isinstance(self.reader, CastingReader):
                    cast(self.reader, match.takes, self._translated.translation)
                holders = match.holders()
                check_reshaped(operation, self.reader, match, holders, self._translated.translation, self.graph)
            except MismatchError as error:
                misfits = error.report
            return self._report_before(misfits, match, operation)
        finally:
            match.undo()

    def matched_values(self, operation: Operation) -> list[tuple[str, Any]]:
        """The key of each saved value that `restore` would restore, and the live object for it. No object changes.

        Args:
            operation: The restore that is tried.

        Raises:
            MilepostError: As for `preview`.
            MismatchError: A saved value does not fit its object.
        """
        match = self._matcher.match(operation, 0, operation.root, operation.attached)
        try:
            check_reshaped(operation, self.reader, match, match.holders(), self._translated.translation, self.graph)
        finally:
            match.undo()
        return [
            (value.key, live)
            for number, live in [*match.bindings.items(), *match.copies]
            for value in self.graph.nodes[number].values
        ]

    def misfits(self, operation: Operation) -> list[tuple[Entry, Any]]:
        """The saved values that do not fit their objects, each with the object. No object changes.

        Args:
            operation: The restore that is tried.

        Raises:
            MilepostError: As for `preview`.
        """
        match = self._matcher.match(operation, 0, operation.root, operation.attached)
        objects = {key: take.obj for take in match.takes for _, key in take.values}
        for node, values in self._translated.variables.items():
            objects.update((value.key, match.bindings.get(node)) for value in values)
        translation, found = self._translated.translation, list[Entry]()
        try:
            if isinstance(self.reader, CastingReader):
                cast(self.reader, match.takes, translation)
            for check in (
                partial(check_reshaped, operation, self.reader, match, match.holders(), translation, self.graph),
                partial(check_variables, operation, self.reader, match.bindings, self._translated),
            ):
                try:
                    check()
                except MismatchError as error:
                    found += error.report
        finally:
            match.undo()
        return [(entry, objects[entry.key]) for entry in found]

    def _report_of_refused(self, misfits: Report, match: Match, operation: Operation) -> Report:
        """A report of the values that do not fit, and of those that would be unmatched on either side."""
        entries = self._report_before(misfits, match, operation)
        return sorted_report(self.reader.prefix, [each for each in entries if each.outcome is not Outcome.MATCHED])

    def _report_before(self, misfits: Report, match: Match, operation: Operation) -> Report:
        """A report of the outcome that every value would have, with those that do not fit."""
        takers = [take.obj for take in match.takes]
        before: list[int] = []
        self._remember(match, takers, {}, before)
        try:
            living = self._bound.living()
            self._find_stayed(match.stepped, operation)
            saved = self._account_of_saved(self._with_below(each.node for each in match.deferred), living)
            live = self._account_of_live(operation, [*living, *((-1, each.slot) for each in match.unsaved)])
        finally:
            self._forget(match, takers, before, [])
        named = {entry.key for entry in misfits}
        others = [each for each in (*saved, *live) if each.key not in named]
        return sorted_report(self.reader.prefix, [*misfits, *others])

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self.warn_of_unused()
