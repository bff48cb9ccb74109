"""The newest good checkpoint of a series: how it is found and restored, and why newer ones were skipped."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.distributed.find import first_decides, is_first
from milepost.distributed.problems import error_of, facts_of
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    StorageError,
)
from milepost.graph.description import counted
from milepost.manager.finite import tell_passed_over
from milepost.manager.managed_series import ManagedSeries
from milepost.restoring.status import LoadStatus
from milepost.series.damage import concerns_file
from milepost.series.directory import Verification, newest_good, warn_of_skipped
from milepost.series.state_file import STATE_FILE, CheckpointState


class NewestCheckpoint:
    """Finds and restores the newest good checkpoint of a series.

    Args:
        series: The series.
        verify: How checkpoints of earlier runs are verified, as for `milepost.CheckpointManager`.

    Attributes:
        skipped: The checkpoints that the last search skipped, by path, each with the error that says why.
        restored: The checkpoint that was restored last, or None.
    """

    def __init__(self, series: ManagedSeries, verify: Verification) -> None:
        self._series = series
        self._verify = verify
        self.skipped: dict[str, MilepostError] = {}
        self.restored: str | None = None

    def find(self) -> str | None:
        """The path of the newest good checkpoint, or None. The directory is searched only if that is not known yet."""
        series = self._series
        if series.must_look:
            self.skipped, problems = {}, dict[str, MilepostError]()
            newest = newest_good(series.storage, series.listing.refresh, self._verify, problems.__setitem__)
            for path, problem in problems.items():
                self._skip(path, problem, newest)
            with series.lock:
                # a save in the background may have ended meanwhile
                if series.must_look:
                    series.set_latest(newest)
        return series.latest

    def find_to_restore(self) -> str | None:
        """The path of the checkpoint that `restore` would restore, or None. It warns of those that are passed over because they are not finite."""
        newest = self.find()
        if newest is None or not self._wants_finite:
            return newest
        return self._choose(set(), {})

    def restore(self) -> tuple[str, LoadStatus] | None:
        """Restores the newest good checkpoint. With several processes, process 0 chooses it and all restore it.

        Returns:
            Its path and the status of the restore, or None if the state file lists no checkpoints.

        Raises:
            CheckpointNotFoundError: All checkpoints that the state file lists are missing. Or only finite ones are wanted, and there is none.
            CorruptCheckpointError: All checkpoints that the state file lists are damaged or missing.
            StorageError: A file cannot be read, for another reason than a damaged disk.
            MismatchError: A saved value has a different shape or dtype than the live object. Nothing was changed.
        """
        series = self._series
        series.checkpoint.sync()
        problems: dict[str, MilepostError] = {}
        refused: set[str] = set()
        self.skipped = {}
        restored = self._restore_first(refused, problems)
        self.restored = prefix = None if restored is None else restored[0]
        if restored is None and problems:
            for path, problem in problems.items():
                self._skip(path, problem)
            raise self._none_is_good(list(problems.values()))
        state = series.listing.refresh() if problems else None
        listed = [] if state is None else state.newest_first()
        for path, problem in problems.items():
            # another process may have removed it after it was verified
            is_pruned = path in refused and path not in listed and isinstance(problem, CheckpointNotFoundError)
            if not is_pruned:
                self._skip(path, problem, prefix)
        if prefix is not None:
            with series.lock:
                series.set_latest(prefix)
        return restored

    def _restore_first(self, refused: set[str], problems: dict[str, MilepostError]) -> tuple[str, LoadStatus] | None:
        """Restores the newest checkpoint that can be restored. Returns its path and the status, or None if there is none.

        Args:
            refused: Gets the checkpoints that were tried and could not be restored.
            problems: Gets the error of each checkpoint that is skipped.
        """
        series = self._series
        while (prefix := self._choose(refused, problems)) is not None:
            try:
                return prefix, series.checkpoint.restore(prefix, series.with_options(None))
            except (CheckpointNotFoundError, CorruptCheckpointError, StorageError) as error:
                if not concerns_file(error):
                    raise
                problems[prefix] = error
                refused.add(prefix)
        return None

    @property
    def _wants_finite(self) -> bool:
        return self._series.finite is not None and self._series.finite.restore

    def _choose(self, refused: set[str], problems: dict[str, MilepostError]) -> str | None:
        """The newest checkpoint that process 0 finds good, or None.

        Args:
            refused: Checkpoints that were tried and could not be restored.
            problems: Gets why checkpoints are not good, by path.
        """
        series = self._series

        def newest_besides(paths: set[str]) -> str | None:
            return newest_good(
                series.storage,
                lambda: _without(refused | paths, series.listing.refresh()),
                self._verify,
                problems.__setitem__,
            )

        def choose() -> dict[str, Any]:
            passed_over: dict[str, tuple[str, ...]] = {}
            newest = newest_besides(set())
            while newest is not None and self._wants_finite and (names := series.metadata.of(newest).nonfinite):
                passed_over[newest] = names
                newest = newest_besides(set(passed_over))
            if passed_over and newest is None:
                raise _none_is_finite(series.directory, passed_over)
            for path, names in passed_over.items():
                tell_passed_over(path, names, str(newest))
            return {"prefix": newest, "problems": {path: facts_of(problem) for path, problem in problems.items()}}

        chosen = first_decides(series.with_options(None), f"choose a checkpoint of {series.directory}", choose)
        for path, facts in chosen["problems"].items():
            problems.setdefault(path, error_of(facts))
        prefix: str | None = chosen["prefix"]
        return prefix

    def _skip(self, prefix: str, problem: MilepostError, instead: str | None = None) -> None:
        """Remembers why a checkpoint is skipped, without the traceback. Process 0 warns of it."""
        self.skipped[prefix] = problem
        each: BaseException | None = problem
        while each is not None:
            each.__traceback__ = None
            each = each.__cause__ or each.__context__
        if is_first(self._series.with_options(None)):
            warn_of_skipped(prefix, problem, instead)

    def _none_is_good(self, problems: list[MilepostError]) -> MilepostError:
        all_missing = all(isinstance(problem, CheckpointNotFoundError) for problem in problems)
        kind = CheckpointNotFoundError if all_missing else CorruptCheckpointError
        return kind(
            "none of the checkpoints that the state file lists can be restored",
            file=os.path.join(self._series.directory, STATE_FILE),
            found="; ".join(f"{problem.problem} ({problem.file})" for problem in problems),
            remedy="copy a good checkpoint back; to start over, move or delete the damaged checkpoints together with the state "
            "file, or use another directory",
        )


def _none_is_finite(directory: str, passed_over: Mapping[str, Sequence[str]]) -> CheckpointNotFoundError:
    path, names = next(iter(passed_over.items()))
    return CheckpointNotFoundError(
        "no checkpoint is finite, and nonfinite=KeepLastFinite(restore=True) restores no other",
        file=directory,
        expected="a checkpoint without NaN and infinity",
        found=f"{counted(len(passed_over), 'checkpoint')}; {path} has them in {', '.join(names)}",
        remedy="call restore(step) to restore one of them all the same, or start over in another directory",
    )


def _without(paths: set[str], state: CheckpointState | None) -> CheckpointState | None:
    """A state without some of its checkpoints."""
    left = [] if state is None else [prefix for prefix in state.newest_first() if prefix not in paths]
    return CheckpointState(left[0], tuple(reversed(left))) if left else None
