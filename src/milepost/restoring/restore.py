"""One restore of an object-based checkpoint: match, check, deliver, remember.

The first two steps change nothing, and a failure after them is undone (`milepost.restoring.undo`). So a restore that fails has
changed nothing. A saved node without a live object is deferred (`milepost.deferred.table`) on the object that will hold it. Its object
goes through the same four steps when it is made.

Files stay open as long as something is deferred that no newer restore supersedes. There are no reference cycles here, so a
restore without a status and without deferred values is freed at once.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from milepost.bundle import BundleReader
from milepost.collector import QUICK, collection_paused, paused_for
from milepost.deferred.identity import last_restore, reference_to, remember_restore, undo_remembering
from milepost.deferred.position import RestoredPosition
from milepost.deferred.table import (
    SlotKey,
    defer,
    deferred_on,
    is_anything_deferred,
    supersede,
    withdraw,
)
from milepost.distributed.own_values import graph_of_process
from milepost.engine import unasked
from milepost.engine.left_out import NOTHING, LeftOut
from milepost.engine.options import CheckpointOptions
from milepost.engine.progress import Reporter, reporting
from milepost.engine.report import Outcome, Report, ReportEntry, sorted_report
from milepost.engine.restore_record import NO_NOTES, FileNotes, RestoreRecord
from milepost.engine.translation import UNTRANSLATED, Translated
from milepost.errors import MilepostError, MismatchError, UnrestoredWarning, warn
from milepost.graph.adapter import Adapter, adapter_of, adapter_of_type
from milepost.graph.contract.operation import Operation
from milepost.graph.omissions import is_at_or_below
from milepost.graph.saved.edges import by_live_names
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.traversal import walk
from milepost.restoring.base import check_base, equal_to_base
from milepost.restoring.check import check, check_variables
from milepost.restoring.converted import follow_converted
from milepost.restoring.deliver import deliver
from milepost.restoring.entries import (
    entries_of_live,
    entries_of_saved,
    missing_entries,
    outcomes_of,
    warn_of_stayed,
    warn_of_unused,
    with_below,
)
from milepost.restoring.match import Match, Matcher
from milepost.restoring.own_loading import load_by_own_code
from milepost.restoring.reshaped import reshape
from milepost.restoring.undo import Undo, raise_explained
from milepost.restoring.unsaved_slots import located, remove, state_of

if TYPE_CHECKING:
    from milepost.distributed.rounds import Rounds


_NOT_PAUSED: Final[AbstractContextManager[collection_paused | None]] = nullcontext()


def _to_tell(objs: Sequence[Any]) -> Iterator[tuple[Adapter, Any]]:
    """The objects that are told when they have been restored, each after its adapter."""
    telling: dict[type, Adapter] = {}
    for kind in set(map(type, objs)):
        adapter = adapter_of_type(kind)
        if adapter is not None and "on_restored" in adapter.overrides:
            telling[kind] = adapter
    return ((telling[type(obj)], obj) for obj in objs if type(obj) in telling) if telling else iter(())


def _tell_again(notified: Sequence[tuple[Adapter, Any]]) -> None:
    """Tells objects again that their values have changed, so that they compute what depends on them."""
    for adapter, obj in notified:
        with suppress(Exception):  # an error of one of them is why the restore failed
            adapter.on_restored(obj)


class Restoration:
    """One restore of an object-based checkpoint. It lives as long as its status, or as long as a value is deferred.

    Args:
        reader: The open checkpoint.
        graph: Its object graph.
        options: Whether slot variables are skipped, what may be left out, who is told of the progress, and whether all values are
            verified first.
        never_saved: As for `RestoreRecord`.
        rounds: The rounds of the operation, if several processes restore together.
        translated: As for `RestoreRecord`.
        file: As for `RestoreRecord`.
        left_out: As for `RestoreRecord`.

    Attributes:
        record: What it has bound, deferred and found missing.
    """

    def __init__(
        self,
        reader: BundleReader,
        graph: ObjectGraph,
        options: CheckpointOptions,
        never_saved: Collection[str] = (),
        rounds: Rounds | None = None,
        translated: Translated = UNTRANSLATED,
        file: FileNotes = NO_NOTES,
        left_out: LeftOut = NOTHING,
    ) -> None:
        member = (0, 1) if rounds is None else (rounds.rank, rounds.size)
        own_graph = graph_of_process(graph, reader.prefix, *member)
        self.record = RestoreRecord(reader, translated, options, own_graph.graph, never_saved, file, left_out)
        self._matcher = Matcher(self.record, own_graph, member)
        self._rounds = rounds
        unasked.restores.add(self)

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
        record, rounds = self.record, self._rounds
        match = self._matcher.match(operation, 0, operation.root, operation.attached)
        try:
            if match.unsaved:
                self._find_removed(match, operation)
            agree = None if rounds is None else rounds.agree  # all processes change their objects, or none does
            leads = rounds is None or rounds.leads
            with reporting(record.options.progress, "restore", record.reader.prefix, leads=leads) as progress:
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
        record.may_lack = match.may_lack or bool(match.missing)
        record.deferred.release_if_unneeded()
        if match.stepped:
            self._find_stayed(match, operation)
            warn_of_stayed(record, operation)

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
        record = self.record
        bound = record.bound[node]
        if bound is not None:
            # The object may have come under another name before.
            if not (superseded or (bound is child and last_restore(child) >= record.uid)):
                warn(
                    f"{record.reader.prefix}: two live objects match one saved object ({record.saved.name(node)}), and only the first got "
                    "the values: use one object in both places, like the program that saved the checkpoint",
                    UnrestoredWarning,
                )
            return child
        takes_slots = record.saved.slot_nodes and not record.options.experimental_skip_slot_variables
        follows = takes_slots and any(record.graph.nodes[each].slots for each in record.saved.below(node))
        replaced = follow_converted(operation, record) if follows else []
        # if nothing was saved below the object, the match makes so few objects that a pause is not worth while
        maybe_paused = collection_paused() if record.graph.nodes[node].children else _NOT_PAUSED
        with maybe_paused as pause:
            match = self._matcher.match(operation, node, child)
            if superseded:
                match.undo()
                for take in match.takes:
                    match.unused[take.node] = {value.name for value, _ in take.values}
                match.takes, match.deferred = [], []
                self._remember(match, (), {})
                return child
            living = {id(obj) for _, obj in record.bound.living()} if match.unsaved else ()
            match.unsaved = [each for each in match.unsaved if id(each.variable) in living]
            successor = self._run(operation, match, pause).get(id(child), child)
        if record.partial_expected:
            record.reader.release(for_good=False)  # The files were opened again for this object.
        elif replaced:
            self._warn_of_replaced(node, replaced)
        return successor

    def missing(self, operation: Operation) -> list[ReportEntry]:
        """Live values that are not in the checkpoint; see `missing_entries`."""
        return missing_entries(self.record, operation)

    def outcomes(self) -> Counter[Outcome]:
        """How many saved values have which outcome now, as far as that is known without a look at the live objects."""
        return outcomes_of(self.record)

    def warn_of_unused(self) -> None:
        """Warns once of saved values that no object took."""
        warn_of_unused(self.record)

    def _kept(self, operation: Operation) -> Collection[int]:
        """The identities of the live objects that the arguments leave alone."""
        translation = self.record.translated.translation
        if not (translation.selects or translation.kept):
            return ()
        live = walk(operation, slots=False)
        return {id(obj) for obj, path in zip(live.objects, live.paths, strict=True) if translation.leaves_alone(path)}

    def _find_removed(self, match: Match, operation: Operation) -> None:
        """Finds which of the slot variables that the checkpoint lacks are to be removed, and which the arguments leave alone."""
        record = self.record
        whole = record.file.whole
        unsaved = [each for each in match.unsaved if whole is None or each.node in whole]
        match.unsaved = []
        if not unsaved:
            return
        bound = {id(obj) for obj in match.bindings.values()} | {id(None)}
        complete = {node for node in {each.node for each in unsaved} if self._is_whole(node, match)}
        unsaved = [each for each in unsaved if each.node in complete or id(each.variable) in bound]
        try:
            for each, path in located(unsaved, operation):
                if not (
                    record.translated.leaves_alone(path)
                    or record.left_out.has_object(path)
                    or is_at_or_below(path, record.options.allow_unsaved)
                ):
                    match.unsaved.append(each)
        except BaseException as error:
            match.undo()
            raise_explained(error, record.reader.prefix, complete=True)

    def _is_whole(self, node: int, match: Match) -> bool:
        """Whether an optimizer has all variables of its saved slot variables. Otherwise another live variable may be one of them."""
        slots = self.record.graph.nodes[node].slots
        return not self.record.translated.renames_slots_away and all(slot.variable in match.bindings for slot in slots)

    def _find_stayed(self, match: Match, operation: Operation) -> None:
        """Records the state of optimizers that the restore does not change, because the checkpoint lacks it."""
        bound = {id(obj) for _, obj in self.record.bound.living()}
        lacking = (obj for obj in state_of(match.stepped, operation) if id(obj) not in bound)
        self.record.stayed = {id(obj): reference_to(obj) for obj in lacking}

    def _warn_of_replaced(self, optimizer: int, replaced: Sequence[int]) -> None:
        """Warns of slot variables for which an optimizer has other variables than those that were restored."""
        record = self.record
        slots = {variable: slot for variable, _, slot in record.graph.nodes[optimizer].slots if variable in replaced}
        if slots:
            warn(
                f"{record.reader.prefix}: an optimizer was made for other parameters than those that were restored, so it does not "
                f"get its saved state: DTensors with other values have replaced them. Restore after fully_shard() or parallelize_module(), or "
                f"change no values before you make the optimizer:{unasked.listed([record.saved.first_key(each) for each in slots.values()])}",
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
        record = self.record
        undo = Undo()
        notified: list[tuple[Adapter, Any]] = []
        undo.add(partial(_tell_again, notified))  # undone last, when all objects have their old values
        if match.made_slots:
            undo.add(match.undo)
        try:
            holders = match.holders() if match.copies else list(match.bindings.values())
            size = self._check(operation, match, holders)
            if record.translated.variables:
                check_variables(operation, record, match.bindings)
            if record.left_out.digests and not match.is_late:
                check_base(operation, record, self._rounds)
            if pause is not None and size > QUICK:
                pause.end()
            if match.deferred:
                record.reader.hold()
            successors = deliver(
                operation,
                record.reader,
                match.takes,
                holders,
                undo,
                growth=match.growth,
                verified=agree,
                before_own_code=None if pause is None else pause.end,
                progress=progress,
                fresh=match.fresh,
                verify_first=record.options.verify_first,
            )
            if len(match.bindings) > 1 or match.deferred:
                load_by_own_code(record, match, undo, partial(self._kept, operation))
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
                notified.append((adapter, obj))
                adapter.on_restored(obj)
            if agree is not None:
                agree()
        except BaseException as error:
            raise_explained(error, record.reader.prefix, complete=undo.run())
        match.made_slots = []  # they stay, also if Ctrl-C comes now
        if is_anything_deferred():
            self._supersede(match, crowded)
        return successors

    def _check(self, operation: Operation, match: Match, holders: Sequence[Any]) -> int:
        """Checks that every value fits its object, or that the object is to get the saved shape. No object changes.

        Returns:
            The bytes of all values as they are in the files.
        """
        try:
            return check(operation, self.record, match.takes)
        except MismatchError:
            if not reshape(self.record.reader, match, holders):
                raise
        return check(operation, self.record, match.takes)

    def _remember(
        self, match: Match, takers: Sequence[Any], successors: Mapping[int, Any], before: list[int] | None = None
    ) -> None:
        """Records what was matched.

        Args:
            match: The match.
            takers: The objects that took values.
            successors: Successors by the identity of the object that each replaces.
            before: Gets the number of the restore that gave each taker its values before, for `_forget`.
        """
        before = [] if before is None else before
        record, bound = self.record, self.record.bound
        with paused_for(len(match.bindings)):
            bound.update(match.bindings, successors)
            if match.copies:
                bound.add_copies(match.copies, successors)
            for taker in takers:
                before.append(remember_restore(taker, record.uid, bound))
        record.unused.update((node, frozenset(names)) for node, names in match.unused.items())
        record.missing.update((node, frozenset(names)) for node, names in match.missing.items())
        record.lacking.update((id(obj), reference_to(obj)) for obj in match.lacking)
        record.filled.update((id(obj), reference_to(obj)) for obj in match.filled)
        record.contradicted.update(match.contradicted)

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
        record = self.record
        for obj, uid in itertools.zip_longest(takers, before, fillvalue=0):
            undo_remembering(obj, record.uid, uid)
        for node in match.bindings:
            del record.bound[node]
            for of_node in (record.unused, record.contradicted, record.missing):
                of_node.pop(node, None)
        for obj in match.lacking:
            record.lacking.pop(id(obj), None)
        for obj in match.filled:
            record.filled.pop(id(obj), None)

    def _defer_rest(
        self, match: Match, successors: Mapping[int, Any], positions: list[RestoredPosition]
    ) -> list[tuple[Any, str | SlotKey]]:
        """Defers what was not matched. Returns the holders and names at which an older restore has deferred something too."""
        crowded: list[tuple[Any, str | SlotKey]] = []
        # All positions are made first, because files are closed when none is left, and noted first, so that all can be withdrawn.
        positions += [
            RestoredPosition(self, deferred.node, deferred.variable, deferred.siblings, is_late=match.is_late)
            for deferred in match.deferred
        ]
        for deferred, position in zip(match.deferred, positions, strict=True):
            holder = successors.get(id(deferred.holder), deferred.holder)
            count = defer(holder, deferred.name, position)
            if count:
                if count > 1:
                    crowded.append((holder, deferred.name))
                adapter = adapter_of(holder)
                if adapter is not None:
                    adapter.on_deferred(holder)
        return crowded

    def _supersede(self, match: Match, crowded: Sequence[tuple[Any, str | SlotKey]]) -> None:
        """Supersedes the positions of older restores for the children that this one has matched or deferred."""
        record = self.record
        for holder, name in crowded:
            supersede(holder, (name,), record.uid)
        for node, obj in match.bindings.items():
            if deferred_on(obj):
                saved, adapter = record.graph.nodes[node], adapter_of_type(type(obj))
                names: set[str | SlotKey] = {edge.name for edge in saved.children}
                if adapter is not None:
                    names.update(name for name, _ in by_live_names(adapter, obj, saved.children, ()))
                names |= {(id(record.bound[variable]), name) for variable, name, _ in saved.slots}
                if not record.options.experimental_skip_slot_variables:
                    names |= self._deferred_slots_of_bound(obj)
                if adapter is not None and adapter.saved_whole and not record.translated.left_out:
                    names |= deferred_on(obj).keys()
                supersede(obj, names, record.uid)

    def _deferred_slots_of_bound(self, owner: Any) -> set[SlotKey]:
        """The slot variables that any restore has deferred on an optimizer, of the variables that this one has bound."""
        deferred = {
            name: positions[0].variable
            for name, positions in deferred_on(owner).items()
            if type(name) is tuple and positions
        }
        bound = {id(obj) for _, obj in self.record.bound.living()} if deferred else ()
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
        if match.unsaved:
            self._find_removed(match, operation)
        misfits = Report(self.record.reader.prefix, ())
        try:
            try:
                self._check(operation, match, match.holders())
            except MismatchError as error:
                misfits = error.report
            if self.record.left_out.digests:
                self.record.equal_to_base = equal_to_base(operation, self.record)
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
            self._check(operation, match, match.holders())
        finally:
            match.undo()
        return [
            (value.key, live)
            for number, live in [*match.bindings.items(), *match.copies]
            for value in self.record.graph.nodes[number].values
        ]

    def misfits(self, operation: Operation) -> list[tuple[ReportEntry, Any]]:
        """The saved values that do not fit their objects, each with the object. No object changes.

        Args:
            operation: The restore that is tried.

        Raises:
            MilepostError: As for `preview`.
        """
        match = self._matcher.match(operation, 0, operation.root, operation.attached)
        objects = {key: take.obj for take in match.takes for _, key in take.values}
        for node, values in self.record.translated.variables.items():
            objects.update((value.key, match.bindings.get(node)) for value in values)
        entries = list[ReportEntry]()
        try:
            for step in (
                partial(self._check, operation, match, match.holders()),
                partial(check_variables, operation, self.record, match.bindings),
            ):
                try:
                    step()
                except MismatchError as error:
                    entries += error.report
        finally:
            match.undo()
        return [(entry, objects[entry.key]) for entry in entries]

    def _report_of_refused(self, misfits: Report, match: Match, operation: Operation) -> Report:
        """A report of the values that do not fit, and of those that would be unmatched on either side."""
        entries = self._report_before(misfits, match, operation)
        return sorted_report(
            self.record.reader.prefix, [each for each in entries if each.outcome is not Outcome.MATCHED]
        )

    def _report_before(self, misfits: Report, match: Match, operation: Operation) -> Report:
        """A report of the outcome that every value would have, with those that do not fit."""
        takers = [take.obj for take in match.takes]
        before: list[int] = []
        self._remember(match, takers, {}, before)
        try:
            record = self.record
            living = record.bound.living()
            if match.stepped:
                self._find_stayed(match, operation)
            saved = entries_of_saved(record, with_below(record, (each.node for each in match.deferred)), living)
            live = entries_of_live(record, operation, [*living, *((-1, each.slot) for each in match.unsaved)])
        finally:
            self._forget(match, takers, before, [])
        named = {entry.key for entry in misfits}
        others = [each for each in (*saved, *live) if each.key not in named]
        return sorted_report(record.reader.prefix, [*misfits, *others])

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        record = self.__dict__.get("record")  # Ctrl-C may have come before there is one
        if record is not None and not is_finalizing():
            warn_of_unused(record)
