"""Restores name-based checkpoints: those of TensorFlow 1's ``Saver`` and of Estimators.

Such a file has no object graph. A live value is matched by the name of its variable or, if it has none, by its object
path. Objects that are attached later are matched then. The arguments of a restore may have either of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.bundle import BundleReader
from milepost.collector import collection_paused
from milepost.deferred.identity import last_restore, remember_restore, undo_remembering
from milepost.deferred.rescan import look_again_below
from milepost.deferred.table import ANY, defer, supersede, withdraw
from milepost.engine import unasked
from milepost.engine.options import CheckpointOptions
from milepost.engine.progress import Reporter, reporting
from milepost.engine.report import Outcome, Report, ReportEntry, sorted_report
from milepost.engine.restore_record import RestoreRecord
from milepost.engine.translation import SAVE_COUNTER, Translated, Translation
from milepost.errors import MismatchError
from milepost.graph.adapter import Value, adapter_of
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import child_path, tensor_key
from milepost.graph.live_graph import LiveGraph
from milepost.graph.saved.renaming import same_name
from milepost.graph.saved.selection import names_of_live
from milepost.graph.traversal import walk
from milepost.restoring.check import check, live_spec
from milepost.restoring.deliver import deliver
from milepost.restoring.entries import matched_entry
from milepost.restoring.take import Take
from milepost.restoring.undo import Undo, raise_explained
from milepost.tensor import TensorSpec

if TYPE_CHECKING:
    from milepost.distributed.rounds import Rounds


class NameBasedRestoration:
    """One restore of a name-based checkpoint.

    Args:
        reader: The open checkpoint.
        translation: The changes between the file and the program. Names in the file count as saved names.
        options: Who is told of the progress, and whether all values are verified before an object changes.
        rounds: The rounds of the operation, if several processes restore together.

    Attributes:
        record: What it has taken.
    """

    def __init__(
        self, reader: BundleReader, translation: Translation, options: CheckpointOptions, rounds: Rounds | None = None
    ) -> None:
        self._rounds = rounds
        self._paths: dict[str, Sequence[str]] = {}
        self._translation = translation.knowing(self._paths)
        self.record = RestoreRecord(reader, Translated(self._translation), options)
        self._reader = self.record.reader
        self._keys: dict[str, str] | None = None
        if translation.renames:
            self._keys = {}
            for key in reader.keys():  # noqa: SIM118 - a reader is not a mapping
                new = translation.live_path(key)
                if new is not None and self._keys.setdefault(new, key) != key and translation.takes(new):
                    raise same_name(key, self._keys[new])
        unasked.restores.add(self)

    def restore(self, operation: Operation, pause: collection_paused) -> None:
        """Restores every value reachable from the root whose name the checkpoint has. Errors are those of `Restoration`.

        Args:
            operation: The restore.
            pause: Keeps the garbage collector from running. It ends here.
        """
        pause.end()
        live = walk(operation)
        self.record.bound[0] = operation.root
        rounds = self._rounds
        leads = rounds is None or rounds.leads
        with reporting(self.record.options.progress, "restore", self._reader.prefix, leads=leads) as progress:
            self._run(operation, live, "", None if rounds is None else rounds.agree, progress)
            if progress is not None:
                progress.finish()

    def preview(self, operation: Operation) -> Report:
        """The report that `restore` would give. Arguments and errors are those of `Restoration.preview`."""
        takes = self._takes(walk(operation), "")
        misfits: Sequence[ReportEntry] = ()
        try:
            check(operation, self.record, takes)
        except MismatchError as error:
            misfits = error.report.entries
        before = [(take.obj, last_restore(take.obj)) for take in takes]
        try:
            for take in takes:
                remember_restore(take.obj, self.record.uid)
            report = self.report(operation)
        finally:
            self._forget(before, [])
        named = {entry.key for entry in misfits}
        return sorted_report(self._reader.prefix, [*misfits, *(each for each in report if each.key not in named)])

    def misfits(self, operation: Operation) -> list[tuple[ReportEntry, Any]]:
        """The saved values that do not fit their objects, each with the object. Arguments and errors are those of `preview`."""
        takes = self._takes(walk(operation), "")
        objects = {key: take.obj for take in takes for _, key in take.values}
        try:
            check(operation, self.record, takes)
        except MismatchError as error:
            return [(entry, objects[entry.key]) for entry in error.report.entries]
        return []

    def missing(self, operation: Operation) -> list[ReportEntry]:
        """Live values that are not in the checkpoint."""
        return self.report(operation).missing

    def warn_of_unused(self) -> None:
        """Does not warn, because such a file usually has more values than a program restores."""

    def outcomes(self) -> Counter[Outcome]:
        """How many saved values have which outcome, as far as that is known without a look at the live objects."""
        return Counter({Outcome.MATCHED: len(self.record.taken)})

    def settle(self, operation: Operation, path: str, child: Any) -> Any:
        """Restores an object that is attached at ``path`` after the restore."""
        below = Operation(child)
        below.held = operation.held
        below.coming = operation.coming
        successor = self._run(below, walk(below), path).get(id(child), child)
        if self.record.partial_expected:
            self._reader.release(for_good=False)  # The files were opened again for this object only.
        return successor

    def report(self, operation: Operation) -> Report:
        """A report of every live value and, as unexpected, of every key that no live value has."""
        look_again_below(operation)
        live = walk(operation)
        entries = []
        used, left_alone = set(), set()
        others = self._other_paths(live, "")
        for number, values in live.values():
            for value in values:
                name = self._name(value, live.paths[number])
                key = self._key(name)
                if not self._takes_value(name, live.paths[number], others.get(number, ())):
                    left_alone.add(key)
                    note = "left alone by ignore or only"
                    entries.append(
                        ReportEntry(
                            Outcome.IGNORED, name, live=live_spec(operation, value, live.objects[number]), note=note
                        )
                    )
                elif key is not None and last_restore(live.objects[number]) >= self.record.uid:
                    used.add(key)
                    entries.append(matched_entry(self.record, key))
                elif live.paths[number] != SAVE_COUNTER:
                    missing = name or tensor_key(live.paths[number], value.name)
                    entries.append(
                        ReportEntry(Outcome.MISSING, missing, live=live_spec(operation, value, live.objects[number]))
                    )
        wanted = None
        if self._keys is not None:
            wanted = {key for new, key in self._keys.items() if self._translation.takes(new)} - left_alone
        entries += [
            ReportEntry(
                Outcome.UNEXPECTED if wanted is None or key in wanted else Outcome.IGNORED,
                key,
                str(self._reader.spec(key)),
            )
            for key in self._reader.keys()  # noqa: SIM118 - a reader is not a mapping
            if key not in used
        ]
        return sorted_report(self._reader.prefix, entries)

    def _run(
        self,
        operation: Operation,
        live: LiveGraph,
        path: str,
        agree: Callable[[], object] | None = None,
        progress: Reporter | None = None,
    ) -> dict[int, Any]:
        takes = self._takes(live, path)
        undo = Undo()
        try:
            check(operation, self.record, takes)
            self._reader.hold()
            successors = deliver(
                operation,
                self._reader,
                takes,
                live.objects,
                undo,
                verified=agree,
                progress=progress,
                verify_first=self.record.options.verify_first,
            )
            takers = [successors.get(id(take.obj), take.obj) for take in takes]
            positions: list[_Anything] = []
            undo.add(partial(self._forget, [(taker, last_restore(taker)) for taker in takers], positions))
            for taker in takers:
                remember_restore(taker, self.record.uid)
            crowded = self._defer_rest(live, path, successors, positions)
            if agree is not None:
                agree()
        except BaseException as error:
            raise_explained(error, self._reader.prefix, complete=undo.run())
        for holder in crowded:
            supersede(holder, (ANY,), self.record.uid)
        self.record.taken.update(key for take in takes for _, key in take.values)
        return successors

    def _takes(self, live: LiveGraph, path: str) -> list[Take]:
        """The live objects that take values, and the keys of these."""
        takes: list[Take] = []
        others = self._other_paths(live, path)
        for number, values in live.values():
            obj, more = live.objects[number], others.get(number, ())
            own_path = _below(path, live.paths[number])
            names = [(value, self._name(value, own_path)) for value in values]
            pairs = [
                (value, key)
                for value, name in names
                if (key := self._key(name)) is not None and self._takes_value(name, own_path, more)
            ]
            self._paths |= {key: (own_path, *more) for _, key in pairs}
            self.record.may_lack |= len(pairs) < len(values)
            if pairs and last_restore(obj) < self.record.uid:
                takes.append(Take(number, obj, live.adapters[number], pairs))
        return takes

    def _defer_rest(
        self, live: LiveGraph, path: str, successors: Mapping[int, Any], positions: list[_Anything]
    ) -> list[Any]:
        """Waits for new children of all objects. Returns the objects where an older restore waits too."""
        crowded = []
        for number, obj in enumerate(live.objects):
            adapter = adapter_of(obj)
            if adapter is not None and not adapter.leaf:
                own_path = _below(path, live.paths[number])
                holder = successors.get(id(obj), obj)
                positions.append(_Anything(self, own_path))
                count = defer(holder, ANY, positions[-1])
                if count:
                    adapter.on_deferred(holder)
                if count > 1:
                    crowded.append(holder)
        return crowded

    def _forget(self, before: Sequence[tuple[Any, int]], positions: list[_Anything]) -> None:
        withdraw(positions)
        for obj, uid in before:
            undo_remembering(obj, self.record.uid, uid)

    def _key(self, name: str) -> str | None:
        """The key of the value that has this name in the program, or None."""
        if self._keys is not None:
            return self._keys.get(name)
        return name if name in self._reader else None

    def _takes_value(self, name: str, path: str, others: Sequence[str]) -> bool:
        """Whether ``only`` and ``ignore`` leave a live value to this restore, by its name and its paths."""
        return not self._translation.selects or self._translation.takes_any({name, path}, others)

    def _other_paths(self, live: LiveGraph, path: str) -> dict[int, list[str]]:
        """The other paths of live objects that have several, if ``only`` or ``cast`` may have them."""
        if self._translation.only is None and not self._translation.casts_some:
            return {}
        return {number: [_below(path, each) for each in paths[1:]] for number, paths in names_of_live(live).items()}

    def _name(self, value: Value, path: str) -> str:
        """The name of a live value: its own or, if it has none, or if ``rename`` says so, its path."""
        is_said = self._keys is not None and value.full_name not in self._keys and self._keys.get(path, path) != path
        return path if is_said else value.full_name or path


def _below(path: str, name: str) -> str:
    return "/".join(filter(None, (path, name)))


class _Anything:
    """A position for every new child of an object; see `milepost.deferred.table`."""

    key = ""
    was_passed = False
    siblings = 0
    is_late = False

    def __init__(self, restoration: NameBasedRestoration, path: str) -> None:
        self.restoration = restoration
        self.path = path
        self.superseded = False

    @property
    def uid(self) -> int:
        return self.restoration.record.uid

    @property
    def file(self) -> str:
        return self.restoration.record.reader.prefix

    @property
    def variable(self) -> None:
        return None

    def supersede(self) -> bool:
        self.superseded = True
        self.restoration.record.reader.release(for_good=False)
        return False

    def peek(self) -> Any:
        return None

    def specs(self) -> Mapping[str, TensorSpec]:
        return {}

    def is_settled(self) -> bool:
        return False

    def settle(self, operation: Operation, name: Any, child: Any) -> Any:
        if self.superseded:
            return child
        return self.restoration.settle(operation, child_path(self.path, name, is_root=not self.path), child)

    def unsettle(self) -> None:
        """Does nothing, because objects are found by their names each time."""
