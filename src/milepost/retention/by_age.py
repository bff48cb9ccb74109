"""Policies that keep checkpoints by the time of their save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from milepost.retention.managed import ManagedCheckpoint
from milepost.retention.policy import Policy, check_count, check_hours

_SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True)
class Newest(Policy):
    """Keeps the checkpoints that were saved last.

    Args:
        n: How many.

    Raises:
        UnsupportedError: ``n`` is not a whole number from 1 on.

    Example:
        >>> saved = [ManagedCheckpoint(f"ckpt-{step}", float(step)) for step in (1, 2, 3)]
        >>> Newest(2).kept(saved)
        {1: 'among the newest 2', 2: 'among the newest 2'}
    """

    n: int
    uses_metrics = False

    def __post_init__(self) -> None:
        check_count(self, "n", self.n)

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        reason = f"among the newest {self.n}" if self.n > 1 else "the newest"
        return dict.fromkeys(range(max(0, len(checkpoints) - self.n), len(checkpoints)), reason)


@dataclass(frozen=True)
class EveryHours(Policy):
    """Keeps the first checkpoint, and then each one that was saved at least a period after the last one that is kept.

    If the clock was set back, the first checkpoint after that is kept too.

    Args:
        hours: The period, in hours.

    Raises:
        UnsupportedError: ``hours`` is not a number greater than 0.

    Example:
        >>> saved = [ManagedCheckpoint(f"ckpt-{hour}", hour * 3600.0) for hour in range(8)]
        >>> [saved[place].step for place in EveryHours(3).kept(saved)]
        [0, 3, 6]
    """

    hours: float
    uses_metrics = False

    def __post_init__(self) -> None:
        check_hours(self, self.hours)

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        reasons: dict[int, str] = {}
        last: float | None = None
        for position, checkpoint in enumerate(checkpoints):
            if (
                last is None
                or checkpoint.timestamp < last
                or checkpoint.timestamp - last >= self.hours * _SECONDS_PER_HOUR
            ):
                reasons[position] = f"the first of {_hours(self.hours)}"
                last = checkpoint.timestamp
        return reasons


@dataclass(frozen=True)
class Recent(Policy):
    """Keeps the checkpoints that were saved within some hours before the newest one.

    The time is counted back from the newest checkpoint, so that a run that is continued after a pause finds its checkpoints.

    Args:
        hours: How many hours.

    Raises:
        UnsupportedError: ``hours`` is not a number greater than 0.

    Example:
        >>> saved = [ManagedCheckpoint(f"ckpt-{hour}", hour * 3600.0) for hour in range(5)]
        >>> [saved[place].step for place in Recent(hours=2).kept(saved)]
        [2, 3, 4]
    """

    hours: float
    uses_metrics = False

    def __post_init__(self) -> None:
        check_hours(self, self.hours)

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        if not checkpoints:
            return {}
        since = checkpoints[-1].timestamp - self.hours * _SECONDS_PER_HOUR
        reason = f"saved within {_hours(self.hours)} before the newest"
        return {position: reason for position, each in enumerate(checkpoints) if each.timestamp >= since}


def _hours(count: float) -> str:
    return "1 hour" if count == 1 else f"{count:g} hours"
