"""A checkpoint as policies see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ManagedCheckpoint:
    """A checkpoint that a manager keeps or deletes.

    Attributes:
        prefix: The path without the endings of the files.
        timestamp: When it was saved, in seconds since the epoch.
        metrics: The metrics that were saved with it, or None if there are none or if no policy needs them.
        pinned: Whether it is pinned.
        nonfinite: Whether it is marked as not finite (`milepost.KeepLastFinite`), damaged or missing. This is known of those that are newer than the
            last finite one; it is false for all others.

    Example:
        >>> ManagedCheckpoint("run/ckpt-12", 1_700_000_000.0).step
        12
    """

    prefix: str
    timestamp: float
    metrics: Mapping[str, Any] | None = field(default=None, hash=False)
    pinned: bool = False
    nonfinite: bool = False

    @property
    def step(self) -> int:
        """The number at the end of the prefix; -1 if there is none."""
        number = self.prefix.rpartition("-")[2]
        return int(number) if number.isascii() and number.isdigit() else -1
