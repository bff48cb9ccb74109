"""The report of a restore: every saved value and every live value, each with its key and its outcome."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from milepost.errors import printable
from milepost.graph.description import html_table, of_file
from milepost.graph.keys import short_name


class Outcome(StrEnum):
    """The outcome for one saved value or one live value. Each is equal to its text."""

    MATCHED = "matched"
    """Saved, and assigned to a live object."""
    DEFERRED = "deferred"
    """Saved, and deferred until its object exists."""
    MISSING = "missing"
    """A live value that is not in the checkpoint."""
    LEFT_OUT = "left out"
    """A live value that is not in the checkpoint because its save has left it out on purpose. Assertions count it as missing."""
    UNEXPECTED = "unexpected"
    """Saved, but no live object takes it, and no object that is made later can take it."""
    IGNORED = "ignored"
    """Left out of the restore by ``rename``, ``ignore`` or ``only``: a saved value, or a live value that is not
    changed."""
    WRONG_SHAPE = "wrong shape"
    """Saved with a shape that the live object does not accept."""
    WRONG_DTYPE = "wrong dtype"
    """Saved with an element type other than the live object's."""


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """One line of a `Report`.

    Attributes:
        outcome: What happened to the value.
        key: The checkpoint key. For a live value that was not saved, the key that it would have.
        saved: Element type and shape in the checkpoint, such as ``float32[2,3]``. Empty if the value was not saved.
        live: Element type and shape of the live value. Empty if there is none.
        note: An explanation, or empty.
        skipped_by_tensorflow: Whether the value is missing only because TensorFlow, which wrote the checkpoint, saves no such
            values. Assertions do not count it.
    """

    outcome: Outcome
    key: str
    saved: str = ""
    live: str = ""
    note: str = ""
    skipped_by_tensorflow: bool = False

    def __str__(self) -> str:
        if self.saved and self.live and self.saved != self.live:
            specs = f" saved {self.saved}, live {self.live}"
        else:
            specs = f" {self.saved or self.live}"
        return printable(f"{printable(self.key, one_line=True)}{specs}{f' ({self.note})' if self.note else ''}")


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a restore at the time when the report is made. It counts values, not objects.

    Printing it lists all values that are not matched, and matched ones with a note. `to_dict` and `to_json` return all
    entries.

    Attributes:
        prefix: The checkpoint that was restored.
        entries: One for each saved value and each live value, sorted by outcome and key.

    Example:
        >>> print(Report("ckpt-1", (ReportEntry(Outcome.MISSING, "net/bias", live="float32[5]"),)))
        ckpt-1: 0 matched, 0 deferred, 1 missing, 0 unexpected, 0 wrong shape, 0 wrong dtype
        missing (live values that the checkpoint does not have):
          net/bias float32[5]
    """

    prefix: str
    entries: tuple[ReportEntry, ...]

    def of(self, outcome: str) -> list[ReportEntry]:
        """The entries with this outcome, sorted by key.

        Args:
            outcome: Which of the outcomes, such as ``"missing"``.
        """
        return [entry for entry in self.entries if entry.outcome == outcome]

    @property
    def matched(self) -> list[ReportEntry]:
        """Saved values that were assigned to live objects."""
        return self.of(Outcome.MATCHED)

    @property
    def deferred(self) -> list[ReportEntry]:
        """Saved values whose objects do not exist yet."""
        return self.of(Outcome.DEFERRED)

    @property
    def missing(self) -> list[ReportEntry]:
        """Live values that are not in the checkpoint."""
        return self.of(Outcome.MISSING)

    @property
    def left_out(self) -> list[ReportEntry]:
        """Live values that are not in the checkpoint because its save has left them out on purpose."""
        return self.of(Outcome.LEFT_OUT)

    @property
    def unexpected(self) -> list[ReportEntry]:
        """Saved values that no live object takes."""
        return self.of(Outcome.UNEXPECTED)

    @property
    def ignored(self) -> list[ReportEntry]:
        """Saved and live values that the call of the restore has left out."""
        return self.of(Outcome.IGNORED)

    @property
    def wrong_shape(self) -> list[ReportEntry]:
        """Saved values of another shape than the live object's."""
        return self.of(Outcome.WRONG_SHAPE)

    @property
    def wrong_dtype(self) -> list[ReportEntry]:
        """Saved values of another element type than the live object's."""
        return self.of(Outcome.WRONG_DTYPE)

    @property
    def complete(self) -> bool:
        """Whether every saved value and every live value is matched, except those that the call has left out."""
        return all(entry.outcome in (Outcome.MATCHED, Outcome.IGNORED) for entry in self.entries)

    def counts(self) -> dict[str, int]:
        """The number of entries for each outcome, by its name, such as ``"missing"``; 0 where there are none."""
        return {outcome.value: len(self.of(outcome)) for outcome in Outcome}

    def to_dict(self) -> dict[str, object]:
        """The report as plain dicts, lists and strings."""
        entries = [{**asdict(entry), "outcome": entry.outcome.value} for entry in self.entries]
        return {"prefix": self.prefix, "counts": self.counts(), "entries": entries}

    def to_json(self, *, indent: int | None = None) -> str:
        """The report as JSON, with the keys ``prefix``, ``counts`` and ``entries``.

        Args:
            indent: How far each level is indented, as for `json.dumps`; by default everything is on one line.
        """
        return json.dumps(self.to_dict(), indent=indent)

    def __iter__(self) -> Iterator[ReportEntry]:
        return iter(self.entries)

    def __repr__(self) -> str:
        counts = [f"{count} {name}" for name, count in self.counts().items() if count]
        return of_file(self, self.prefix, "values: " + ", ".join(counts) if counts else "no values")

    def _repr_html_(self) -> str:
        """A table of the entries, matched ones last, which a notebook shows."""
        entries = sorted(self.entries, key=lambda entry: entry.outcome is Outcome.MATCHED)
        rows = (
            [each.outcome.value, short_name(each.key) or each.key, each.saved, each.live, each.note] for each in entries
        )
        return html_table(repr(self), ["outcome", "name", "saved", "live", "note"], rows, len(entries))

    def __str__(self) -> str:
        lines = [
            f"{printable(self.prefix, one_line=True)}: "
            + ", ".join(f"{count} {name}" for name, count in self.counts().items() if count or name not in _SELDOM)
        ]
        for outcome in Outcome:
            entries = self.of(outcome)
            if outcome is Outcome.MATCHED:
                entries = [entry for entry in entries if entry.note]
            if entries:
                heading = (
                    "matched, with a note" if outcome is Outcome.MATCHED else f"{outcome.value} ({EXPLAINED[outcome]})"
                )
                lines.append(f"{heading}:")
                lines += [f"  {entry}" for entry in entries]
        return "\n".join(lines)


def sorted_report(prefix: str, entries: Iterable[ReportEntry]) -> Report:
    """A report whose entries are sorted by outcome and key."""
    order = {outcome: position for position, outcome in enumerate(Outcome)}
    return Report(prefix, tuple(sorted(entries, key=lambda entry: (order[entry.outcome], entry.key))))


_SELDOM: Final = (Outcome.LEFT_OUT.value, Outcome.IGNORED.value)
"""Outcomes that the first line of a report has only if a value has them."""
EXPLAINED: Final = {
    Outcome.MATCHED: "saved values that live objects have taken",
    Outcome.DEFERRED: "saved values whose objects do not exist yet",
    Outcome.MISSING: "live values that the checkpoint does not have",
    Outcome.LEFT_OUT: "live values that the save has left out on purpose",
    Outcome.UNEXPECTED: "saved values that no live object takes",
    Outcome.IGNORED: "left out by the call of the restore",
    Outcome.WRONG_SHAPE: "saved values whose shape the live object does not accept",
    Outcome.WRONG_DTYPE: "saved values of another element type; restore(cast=True) converts them",
}
