"""What a manager would delete, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from milepost.graph.description import html_table, kind_of


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one checkpoint is kept or deleted, and why.

    Attributes:
        step: The number of the checkpoint.
        path: The path of the checkpoint.
        kept: Whether the files stay.
        reasons: Why the checkpoint is kept, or why it is deleted.
    """

    step: int
    path: str
    kept: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{os.path.basename(self.path)}: {'keep' if self.kept else 'delete'}: {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The verdicts on the checkpoints of a manager, oldest first. Printing it gives one line for each.

    Attributes:
        verdicts: One for each checkpoint.
    """

    verdicts: tuple[Verdict, ...]

    @property
    def kept(self) -> list[int]:
        """The numbers of the checkpoints that would be kept."""
        return [each.step for each in self.verdicts if each.kept]

    @property
    def deleted(self) -> list[int]:
        """The numbers of the checkpoints that would be deleted."""
        return [each.step for each in self.verdicts if not each.kept]

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)

    def __str__(self) -> str:
        return "\n".join(map(str, self.verdicts))

    def _repr_html_(self) -> str:
        """A table of the verdicts, which a notebook shows."""
        rows = (
            [os.path.basename(each.path), "keep" if each.kept else "delete", "; ".join(each.reasons)]
            for each in self.verdicts
        )
        counts = f"{len(self.kept):,} to keep, {len(self.deleted):,} to delete"
        return html_table(f"<{kind_of(self)}: {counts}>", ["checkpoint", "", "why"], rows, len(self))
