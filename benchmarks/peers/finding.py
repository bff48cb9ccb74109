"""What an experiment found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One cell of the table.

    Attributes:
        cell: ``yes``, ``no``, ``partly``, ``by default`` (an option for trusted files undoes it), or ``not tried``.
        seen: What was tried, and what came of it.
    """

    cell: str
    seen: Mapping[str, str]


def judged(seen: Mapping[str, str], good: str) -> Finding:
    """``yes`` where everything that was tried came out well, ``no`` where nothing did."""
    well = [outcome.startswith(good) for outcome in seen.values()]
    return Finding("yes" if all(well) else "partly" if any(well) else "no", seen)
