"""Which checkpoints to keep: pure functions of lists, without files or clocks.

The rules are those of TensorFlow's ``CheckpointManager``. The newest ``max_to_keep`` of the managed checkpoints stay.
Of the others, oldest first, one is preserved if it was saved at least ``keep_checkpoint_every_n_hours`` after the last
preserved one. The others are deleted. A preserved checkpoint is kept and no longer managed, so that the list does not
grow.

Invariant: the newest checkpoint is always kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class ManagedCheckpoint:
    """A checkpoint that a manager keeps or deletes.

    Attributes:
        prefix: Its prefix.
        timestamp: When it was saved, in seconds since the epoch.
    """

    prefix: str
    timestamp: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a policy about a list of checkpoints. Each checkpoint is in exactly one of the first three lists.

    Attributes:
        keep: Checkpoints that stay managed, oldest first.
        preserve: Checkpoints that are no longer managed, and whose files stay.
        delete: Checkpoints that are no longer managed, and whose files are deleted.
        last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
    """

    keep: tuple[ManagedCheckpoint, ...]
    preserve: tuple[ManagedCheckpoint, ...]
    delete: tuple[ManagedCheckpoint, ...]
    last_preserved: float


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How many checkpoints to keep, and which to preserve.

    Args:
        max_to_keep: How many of the newest to keep, or None to keep all.
        keep_checkpoint_every_n_hours: Hours. One of the others is preserved for each such period; None or 0 preserves
            none.

    Raises:
        ValueError: ``max_to_keep`` is not positive.

    Example:
        >>> saved = [ManagedCheckpoint(f"ckpt-{hour}", hour * 3600.0) for hour in range(1, 6)]
        >>> decision = RetentionPolicy(2, keep_checkpoint_every_n_hours=2).apply(saved, last_preserved=0.0)
        >>> [each.prefix for each in decision.keep]
        ['ckpt-4', 'ckpt-5']
        >>> [each.prefix for each in decision.preserve], [each.prefix for each in decision.delete]
        (['ckpt-2'], ['ckpt-1', 'ckpt-3'])
    """

    max_to_keep: int | None
    keep_checkpoint_every_n_hours: float | None = None

    def __post_init__(self) -> None:
        if self.max_to_keep is not None and self.max_to_keep <= 0:
            raise ValueError(f"max_to_keep must be a positive integer, or None to keep all; it is {self.max_to_keep}")

    def apply(self, managed: Sequence[ManagedCheckpoint], last_preserved: float) -> Decision:
        """Decides about every checkpoint on a list.

        Args:
            managed: The list, oldest first.
            last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
        """
        excess = 0 if self.max_to_keep is None else max(0, len(managed) - self.max_to_keep)
        preserve, delete = [], []
        for checkpoint in managed[:excess]:
            if self._is_due(checkpoint.timestamp, last_preserved):
                preserve.append(checkpoint)
                last_preserved = checkpoint.timestamp
            else:
                delete.append(checkpoint)
        return Decision(tuple(managed[excess:]), tuple(preserve), tuple(delete), last_preserved)

    def _is_due(self, timestamp: float, last_preserved: float) -> bool:
        hours = self.keep_checkpoint_every_n_hours
        return bool(hours) and timestamp - (hours or 0.0) * _SECONDS_PER_HOUR >= last_preserved


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state with which a manager starts.

    Attributes:
        managed: The list, oldest first.
        last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
        clock_went_back: Seconds by which the clock is behind the last preserved checkpoint; 0 if it is not.
    """

    managed: tuple[ManagedCheckpoint, ...]
    last_preserved: float
    clock_went_back: float


def recover(recorded: Sequence[ManagedCheckpoint], last_preserved: float, now: float) -> Recovered:
    """Continues a list that an earlier run recorded.

    Checkpoints that are not newer than the last preserved one are no longer managed. If the clock was set back, later
    times count as the present time, so that no checkpoint is deleted because it seems older than it is.

    Args:
        recorded: The list, oldest first.
        last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
        now: The time, in seconds since the epoch.

    Example:
        >>> recorded = [ManagedCheckpoint("ckpt-1", 50.0), ManagedCheckpoint("ckpt-2", 60.0)]
        >>> recover(recorded, last_preserved=50.0, now=70.0).managed
        (ManagedCheckpoint(prefix='ckpt-2', timestamp=60.0),)
    """
    behind = max(0.0, last_preserved - now)
    last_preserved = min(last_preserved, now)
    clamped = {each.prefix: min(each.timestamp, now) for each in recorded}
    managed = (ManagedCheckpoint(*each) for each in clamped.items())
    return Recovered(tuple(each for each in managed if each.timestamp > last_preserved), last_preserved, behind)
