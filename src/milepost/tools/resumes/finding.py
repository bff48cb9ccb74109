"""The first difference between two runs, and what could explain it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reason:
    """A value of the program that was not the same after a restore.

    Attributes:
        name: The object or variable, and where it is.
        kind: Its class; empty for a number and the like.
        before: What it was at the save.
        after: What it was after the restore.
        remedy: What the user can do.
    """

    name: str
    kind: str
    before: str
    after: str
    remedy: str

    def __str__(self) -> str:
        kind = f" ({self.kind})" if self.kind else ""
        change = f"{self.before} at the save, {self.after} after the restore"
        return f"{self.name}{kind}: {change}; {self.remedy}"


@dataclass(frozen=True)
class Finding:
    """A difference between an undisturbed run and one that was killed and resumed.

    Attributes:
        problem: What differs, in one sentence without a full stop.
        key: The value that differs.
        expected: What the undisturbed run has.
        found: What the other one has.
        is_resumed: Whether a restore may be the cause.
        reasons: What could explain it.
        remedy: What the user can do, if it is sure; there are no reasons then.
        hint: What the user can do, if there are no reasons.
    """

    problem: str
    key: str | None = None
    expected: str | None = None
    found: str | None = None
    is_resumed: bool = True
    reasons: tuple[Reason, ...] = field(default=())
    remedy: str | None = None
    hint: str = ""
