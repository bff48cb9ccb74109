"""What the comparison of two runs has found: the first difference, and what could explain it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from milepost.errors import UnmatchedError
from milepost.tools.resumes.attempt import Attempt
from milepost.tools.resumes.checkpoints import compare_checkpoints, holds_state_of
from milepost.tools.resumes.evidence import GLOBAL
from milepost.tools.resumes.finding import Finding
from milepost.tools.resumes.reasons import name_of, reasons_of_all, unrepeated

_NOT_REPEATED = (
    "the program does not compute the same in every process; set its seeds, and choose deterministic operations, "
    "so that two undisturbed runs are the same"
)
_UNEXPLAINED = (
    "nothing that milepost saw in the program explains it; look for values in files, in other processes, or in compiled "
    "functions, and at what the first step after the restore reads"
)


class TwoRuns(NamedTuple):
    """Two runs of a program.

    Attributes:
        undisturbed: The one that was not killed.
        attempts: The processes of the other one.
        homes: The directories of the two.
    """

    undisturbed: Attempt
    attempts: Sequence[Attempt]
    homes: tuple[Path, Path]

    def finding(self, compare: Callable[[], Finding | None]) -> Finding | None:
        """The first difference; None if there is none.

        Args:
            compare: Compares what the runs have computed, before their checkpoints are compared.
        """
        last = self.attempts[-1]
        finding = failure_of(last, "when it was started again" if len(self.attempts) > 1 else "before it was killed")
        finding = finding or compare() or self._last_checkpoints()
        if finding is None or finding.remedy is not None:
            return finding
        if not finding.is_resumed:
            return replace(finding, remedy="; ".join(filter(None, [_NOT_REPEATED, finding.hint])))
        reasons = reasons_of_all(self.undisturbed, self.attempts, self.homes)
        return replace(finding, reasons=reasons, remedy=None if reasons else finding.hint or _UNEXPLAINED)

    def _last_checkpoints(self) -> Finding | None:
        """How the last checkpoints differ."""
        saved = [event["name"] for event in self.undisturbed.of("saved")]
        if not saved:
            return Finding(
                "the program saves no checkpoint",
                is_resumed=False,
                remedy="save before the first kill, and leave the environment variables of this process to the program",
            )
        others = [event["name"] for attempt in self.attempts for event in attempt.of("saved")]
        expected, found = (
            name_of({"name": names[-1]}, home) if names else "none"
            for names, home in zip((saved, others), self.homes, strict=True)
        )
        if expected != found:
            return Finding("the last checkpoints of the two runs have other names", None, expected, found)
        return compare_checkpoints(saved[-1], others[-1], self._unseeded())

    def left_out(self) -> list[str]:
        """The libraries whose global random state the program saves and does not seed, so that no two runs have the same."""
        saved = [event["name"] for event in self.undisturbed.of("saved")]
        return [library for library in self._unseeded() if holds_state_of(saved[-1], library)] if saved else []

    def _unseeded(self) -> list[str]:
        titles = unrepeated(self.undisturbed, self.attempts[0], self.homes)
        return [title.removeprefix(f"{GLOBAL} of ") for title in titles]


def failure_of(attempt: Attempt, when: str) -> Finding | None:
    """The finding that a process has failed; None if it has not."""
    if not attempt.status or attempt.killed is not None:
        return None
    return Finding(
        f"the program failed {when}",
        None,
        "the exit status 0",
        f"the exit status {attempt.status}, and at the end of its error output:\n{attempt.errors}",
        remedy="correct the program",
    )


def as_error(finding: Finding) -> UnmatchedError:
    """A finding as an error."""
    reasons = "".join(f"\n    {each}" for each in finding.reasons)
    return UnmatchedError(
        finding.problem + (f"; what the program did not hold as at the save:{reasons}" if reasons else ""),
        key=finding.key,
        expected=finding.expected,
        found=finding.found,
        remedy=finding.remedy,
    )
