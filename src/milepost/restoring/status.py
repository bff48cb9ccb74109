"""The status that `Checkpoint.restore` and `Checkpoint.read` return: assertions about the restore, and its report."""

from __future__ import annotations

import abc
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from milepost.engine import unasked
from milepost.engine.report import EXPLAINED, Outcome, Report, ReportEntry
from milepost.engine.translation import SAVE_COUNTER
from milepost.engine.turns import LOOK, Turn
from milepost.errors import UnmatchedError
from milepost.graph.contract.operation import Operation
from milepost.graph.description import counted, html_table, kind_of, of_file
from milepost.graph.frameworks import usable
from milepost.graph.keys import VARIABLE_VALUE, tensor_key
from milepost.graph.traversal import walk
from milepost.restoring.entries import report_of, took_no_values, unmatched_entries
from milepost.restoring.name_based import NameBasedRestoration
from milepost.restoring.offers import offered
from milepost.restoring.restore import Restoration

View = Callable[[], Operation]
"""A function that returns the live root as it is now, and the edges attached to it."""


class LoadStatus(abc.ABC):
    """The common part of the statuses of all restores.

    Args:
        view: Begins an operation at the live root.

    Attributes:
        belongs_to_series: Whether the restored checkpoint may belong to a series. A SavedModel and a file of another
            library do not.
    """

    belongs_to_series: bool = True

    def __init__(self, view: View) -> None:
        self._view = view

    def __repr__(self) -> str:
        return f"<{kind_of(self)}: nothing was restored>"

    def __getattr__(self, name: str) -> Any:
        hint = "; use belongs_to_series, which is its opposite" if name == "foreign" else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    @abc.abstractmethod
    def report(self) -> Report:
        """A report of all values: matched, deferred, missing, unexpected, wrong shape or wrong dtype, each with its key."""

    @abc.abstractmethod
    def assert_consumed(self) -> Self:
        """Asserts that checkpoint and program match exactly.

        Raises:
            UnmatchedError: An ``AssertionError``: a live value was not saved, or a saved value has no live object. Or a name in
                ``only`` names nothing, or the function given as ``rename`` has left out every saved value.
        """

    @abc.abstractmethod
    def assert_existing_objects_matched(self) -> Self:
        """Asserts that every live value was restored. The checkpoint may hold more.

        Raises:
            UnmatchedError: An ``AssertionError``: a live value was not saved. Or as for `assert_consumed`, an argument of the restore
                names nothing.
        """

    @abc.abstractmethod
    def assert_nontrivial_match(self) -> Self:
        """Asserts that an object other than the root was matched, and that a value was restored if there are live values.

        The ``save_counter`` of a `Checkpoint` does not count as a restored value, since every `Checkpoint.restore` makes it.

        Raises:
            UnmatchedError: An ``AssertionError``: only the root was matched, or no value was restored.
        """

    def expect_partial(self) -> Self:
        """Declares that checkpoint and program need not match.

        This ends the warnings of saved values that no object took and of live values that were not saved. The files are
        closed. They are opened again for objects that are made later, which still get their values. If the files have
        been removed or replaced by then, attaching such an object raises `CheckpointNotFoundError`. A save does not
        write deferred values again. To have later objects keep their own values, call `stop_waiting`.

        Returns:
            This status.
        """
        return self

    def stop_waiting(self) -> Self:
        """Ends the restore: objects that are made from now on keep the values that the program gives them.

        The files are closed. Restored values stay. A warning names the saved values that no object took when the status is
        deleted, unless `expect_partial` was called too. A second call does nothing.

        Returns:
            This status.

        Example:
            >>> import milepost, tempfile
            >>> prefix = milepost.Checkpoint(v=milepost.Variable(1.0)).write(tempfile.mkdtemp() + "/ckpt")
            >>> live = milepost.Checkpoint()
            >>> status = live.read(prefix).expect_partial().stop_waiting()
            >>> live.v = milepost.Variable(5.0)
            >>> float(live.v)
            5.0
        """
        return self

    def initialize_or_restore(self, session: Any = None) -> None:
        """Restores the variables of TensorFlow 1's graphs that have saved values, and initializes all others.

        Objects outside of graphs have been restored already.

        Args:
            session: The session, or None for the default session.

        Raises:
            UnsupportedError: There are such variables, but there is no session.
        """
        if usable("tensorflow"):
            from milepost.adapters.tensorflow import session as sessions

            objects = walk(self._view()).objects
            sessions.initialize(objects, session)
            sessions.restore(objects, session)

    def run_restore_ops(self, session: Any = None) -> None:
        """Restores all variables of TensorFlow 1's graphs that exist now, to the values of the last restore.

        Objects outside of graphs have been restored already.

        Args:
            session: The session, or None for the default session.

        Raises:
            UnsupportedError: There are such variables, but there is no session.
        """
        if usable("tensorflow"):
            from milepost.adapters.tensorflow import session as sessions

            sessions.restore(walk(self._view()).objects, session)


class _RestoredStatus(LoadStatus):
    """The status of a restore that restored a checkpoint."""

    _restoration: Restoration | NameBasedRestoration

    def __repr__(self) -> str:
        # It does not make a report, which looks at live values, and ends the warnings of what was not restored.
        restoration = self.__dict__.get("_restoration")
        if restoration is None:
            return of_file(self, None)
        try:
            counts = self._restoration.outcomes()
            facts = [f"{counted(counts[Outcome.MATCHED], 'value')} matched"]
            facts += [f"{counts[each]} {each.value}" for each in _OTHERS_SHOWN if counts[each]]
        except Exception:  # a live object or a closed file; report() raises the error
            facts = []
        return of_file(self, restoration.record.reader.prefix, *facts, "report() lists them")

    def _repr_html_(self) -> str:
        """A table that counts the saved values by outcome, which a notebook shows. As `__repr__`, it makes no report."""
        try:
            counts = self._restoration.outcomes()
        except Exception:  # as in `__repr__`
            counts = Counter()
        shown = [each for each in Outcome if counts.get(each)]
        rows = ([each.value, f"{counts[each]:,}", EXPLAINED[each]] for each in shown)
        return html_table(repr(self), ["outcome", "values", ""], rows, len(shown))

    def _look(self, what: str) -> Turn:
        record = self._restoration.record
        record.is_asked = True
        return Turn(LOOK, f"{what} on the restore of {record.reader.prefix}", self._view)

    def _refuse_unmet(self) -> None:
        """Fails an assertion about all values if the restore has left out what the program asked for."""
        record = self._restoration.record
        unmet = record.translated.translation.unused.unmet
        if not unmet:
            return
        first, *others = unmet
        error = UnmatchedError(
            "the arguments of the restore do not name what they were to name",
            file=record.reader.prefix,
            expected="names of saved values or live objects",
            found="\n    ".join([first.problem, *(str(each) for each in others)]),
            remedy=first.remedy,
        )
        error.report = self.report()
        raise error

    def expect_partial(self) -> Self:
        self._restoration.record.is_asked = True
        self._restoration.record.expect_partial()
        return self

    def stop_waiting(self) -> Self:
        self._restoration.record.stop_waiting()
        return self

    def warn_of_missing(self) -> None:
        """Warns of live values that were not saved, unless the program has asked the status."""
        if self._restoration.record.is_asked:
            return
        try:
            operation = self._view()
        except Exception:  # the program may have changed its objects in any way
            return
        unasked.warn_of_missing(self._restoration, operation)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        restoration = getattr(self, "_restoration", None)
        if restoration is not None and not is_finalizing():
            self.warn_of_missing()
            restoration.record.unwatch()


class CheckpointLoadStatus(_RestoredStatus):
    """The status of a restore of an object-based checkpoint.

    Example:
        >>> import milepost, tempfile
        >>> prefix = milepost.Checkpoint(v=milepost.Variable(1.0)).write(tempfile.mkdtemp() + "/ckpt")
        >>> status = milepost.Checkpoint(v=milepost.Variable(0.0)).read(prefix)
        >>> status.assert_consumed().report().counts()["matched"]
        1
    """

    def __init__(self, restoration: Restoration, view: View, hint: str = "") -> None:
        super().__init__(view)
        self._restoration: Restoration = restoration
        self.hint = hint
        restoration.record.statuses.add(self)

    def report(self) -> Report:
        with self._look("a report"):
            return report_of(self._restoration.record, self._view())

    def matched(self) -> int:
        """How many saved objects match a live object, the root included."""
        return len(self._restoration.record.bound)

    def exchange(self, others: Mapping[int, Any]) -> None:
        """Replaces matched live objects by others, given by the identities of the replaced objects."""
        self._restoration.record.bound.exchange(others)

    def saved_names(self) -> dict[str, list[str]]:
        """Names of the children of the saved root, and of their children."""
        nodes = self._restoration.record.graph.nodes
        return {edge.name: [below.name for below in nodes[edge.node].children] for edge in nodes[0].children}

    def assert_consumed(self) -> Self:
        return self._require(
            "checkpoint and program do not match exactly",
            Outcome.MISSING,
            Outcome.LEFT_OUT,
            Outcome.DEFERRED,
            Outcome.UNEXPECTED,
        )

    def assert_existing_objects_matched(self) -> Self:
        return self._require("live objects were not restored", Outcome.MISSING, Outcome.LEFT_OUT)

    def assert_nontrivial_match(self) -> Self:
        record = self._restoration.record
        record.is_asked = True
        nothing = record.matched_nothing
        if nothing or (took_no_values(record) and any(map(_is_live_only, self.report()))):
            error = UnmatchedError(
                "no object except the root was matched" if nothing else "no value was restored",
                file=record.reader.prefix,
                remedy=self.hint
                or "compare the names of the edges in the program with those in the checkpoint, which milepost.list_variables() shows",
            )
            error.report = self.report()
            raise error
        return self

    def _require(self, problem: str, *outcomes: Outcome) -> Self:
        self._restoration.record.is_asked = True
        self._refuse_unmet()
        with self._look("an assertion"):
            entries = unmatched_entries(self._restoration.record, self._view())
        if any(_fails(entry, outcomes) for entry in entries):
            report = self.report()
            if offending := [entry for entry in report if _fails(entry, outcomes)]:
                raise unmatched(problem, offending, report, self.hint)
        return self


class ForeignStatus(CheckpointLoadStatus):
    """The status of a restore from a file or directory of another library."""

    belongs_to_series = False


class SavedModelStatus(CheckpointLoadStatus):
    """The status of a restore from a SavedModel."""

    belongs_to_series = False


class NameBasedStatus(_RestoredStatus):
    """The status of a restore of a name-based (TensorFlow 1) checkpoint.

    All three assertions are the same: every live value was found by its name. Keys without a live value are only in the
    report.
    """

    def __init__(self, restoration: NameBasedRestoration, view: View) -> None:
        super().__init__(view)
        self._restoration: NameBasedRestoration = restoration
        restoration.record.statuses.add(self)

    def report(self) -> Report:
        with self._look("a report"):
            return self._restoration.report(self._view())

    def assert_consumed(self) -> Self:
        self._refuse_unmet()
        report = self.report()
        if report.missing:
            raise unmatched("the checkpoint has no values of these names", report.missing, report)
        return self

    assert_existing_objects_matched = assert_consumed
    assert_nontrivial_match = assert_consumed


class InitializationOnlyStatus(LoadStatus):
    """The status of ``restore(None)`` and ``read(None)``: nothing was restored, so all assertions fail."""

    def report(self) -> Report:
        return Report("", ())

    def assert_consumed(self) -> Self:
        raise UnmatchedError(
            "no checkpoint was restored: the path given was None",
            remedy="check the path before you call this method; milepost.latest_checkpoint() returns None if there is no checkpoint",
        )

    assert_existing_objects_matched = assert_consumed
    assert_nontrivial_match = assert_consumed

    def run_restore_ops(self, session: Any = None) -> None:
        """Raises an error, since there is nothing to restore.

        Args:
            session: Not used.

        Raises:
            UnmatchedError: Always.
        """
        self.assert_consumed()


_MOST_LISTED: Final = 12
_OTHERS_SHOWN: Final = (Outcome.DEFERRED, Outcome.UNEXPECTED, Outcome.IGNORED)
_COUNTER: Final = tensor_key(SAVE_COUNTER, VARIABLE_VALUE)


def _fails(entry: ReportEntry, outcomes: Collection[Outcome]) -> bool:
    """Whether an entry fails an assertion of which these outcomes are failures."""
    return entry.outcome in outcomes and not entry.skipped_by_tensorflow


def _is_live_only(entry: ReportEntry) -> bool:
    """Whether this is a live value that was not restored. The `save_counter` of a `Checkpoint` does not count."""
    return (
        entry.outcome in (Outcome.MISSING, Outcome.LEFT_OUT, Outcome.IGNORED)
        and bool(entry.live)
        and entry.key != _COUNTER
    )


def _for_counter(entries: Iterable[ReportEntry]) -> str:
    """The remedy if a checkpoint of `write` was given to `restore`, or one of `save` to `read`."""
    outcome = next((each.outcome for each in entries if each.key == _COUNTER), None)
    if outcome is None:
        return ""
    if outcome is Outcome.MISSING:
        return "a checkpoint that write() saved has no save_counter: restore it with read() instead of restore()"
    return "a checkpoint that save() saved has a save_counter: restore it with restore() of a milepost.Checkpoint"


def _for_left_out(entries: Iterable[ReportEntry]) -> str:
    """The remedy if the save has left values out on purpose."""
    if all(each.outcome is not Outcome.LEFT_OUT for each in entries):
        return ""
    return (
        "the save has left values out on purpose: to keep the live ones knowingly, name them in ignore= of the restore, or "
        "restore with the options of the save; to have them compared, save with CheckpointOptions(base=...)"
    )


def _offer(report: Report) -> str:
    """The remedy if saved and live values differ only in their names."""
    argument = offered(report.entries)
    return f"if the program has other names than the file, restore with {argument}" if argument else ""


def unmatched(problem: str, entries: Sequence[ReportEntry], report: Report, hint: str = "") -> UnmatchedError:
    """The error of a failed assertion. It lists the entries that fail it."""
    outcomes = {entry.outcome: [each for each in entries if each.outcome is entry.outcome] for entry in entries}
    share = _MOST_LISTED // max(1, len(outcomes))  # some of each outcome, since missing values explain unexpected ones
    lines = []
    for outcome, group in outcomes.items():
        lines += [f"{outcome.value}: {entry}" for entry in group[:share]]
        if len(group) > share:
            lines.append(f"and {len(group) - share} more that are {outcome.value}")
    listed = "\n    ".join(lines)
    remedies = [hint or _for_counter(entries), _for_left_out(entries), _offer(report)]
    is_explained = hint or all(each.key == _COUNTER for each in entries)
    if not any(remedies) or not (is_explained or remedies[-1]):
        remedies.append(
            "print status.report(), which lists all values; values of objects that are made later are matched then"
        )
    error = UnmatchedError(
        problem,
        key=entries[0].key,
        file=report.prefix,
        expected="every value matched",
        found=f"{len(entries)} not matched\n    {listed}",
        remedy="; ".join(filter(None, remedies)),
    )
    error.report = report
    return error
