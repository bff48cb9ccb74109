"""The rules by which a manager keeps, preserves and deletes checkpoints.

They are those of TensorFlow's ``CheckpointManager``, with pins and policies added. The newest ``max_to_keep`` of the managed
checkpoints stay, and so do those that are pinned or that a policy keeps, and the newest finite one (`milepost.KeepLastFinite`). Of the others, oldest first, one is preserved if it was
saved at least ``keep_checkpoint_every_n_hours`` after the last preserved one. The rest is deleted. A preserved checkpoint is kept and
no longer managed, so the list does not grow.

Invariant: the newest checkpoint is always kept, and so is the newest one that is finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from milepost.retention.by_age import Newest
from milepost.retention.managed import ManagedCheckpoint
from milepost.retention.plan import RetentionPlan, Verdict
from milepost.retention.policy import Policy

_SECONDS_PER_HOUR: Final = 3600.0


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
    """Decides which managed checkpoints to keep, to preserve and to delete.

    Args:
        max_to_keep: How many of the newest to keep. With None, ``keep`` decides alone; without ``keep``, all are kept.
        keep_checkpoint_every_n_hours: Hours. One of the others is preserved for each such period; None or 0 preserves
            none.
        keep: Which others to keep.

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
    keep: Policy | None = None

    def __post_init__(self) -> None:
        if self.max_to_keep is not None and self.max_to_keep <= 0:
            raise ValueError(f"max_to_keep must be a positive integer, or None to keep all; it is {self.max_to_keep}")

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever deleted."""
        return self.max_to_keep is None and self.keep is None

    @property
    def uses_metrics(self) -> bool:
        """Whether the metrics of the checkpoints make a difference."""
        return self.keep is not None and bool(self.keep.uses_metrics)

    def reasons(self, managed: Sequence[ManagedCheckpoint]) -> list[list[str]]:
        """Why each checkpoint on a list stays managed; an empty list for one that does not.

        Args:
            managed: The list, oldest first.
        """
        if self.keeps_all:
            return [["all are kept"] for _ in managed]
        reasons: list[list[str]] = [["pinned"] if each.pinned else [] for each in managed]
        policies: list[Policy] = [Newest(self.max_to_keep or 1)]
        if self.keep is not None:
            policies.append(self.keep)
        if managed and managed[-1].nonfinite:
            finite = [position for position, each in enumerate(managed) if not each.nonfinite]
            for position in finite[-1:]:
                reasons[position].append("the last finite one")
        for policy in policies:
            for position, reason in policy.kept(managed).items():
                if reason not in reasons[position]:
                    reasons[position].append(reason)
        return reasons

    def apply(self, managed: Sequence[ManagedCheckpoint], last_preserved: float) -> Decision:
        """Decides about every checkpoint on a list.

        Args:
            managed: The list, oldest first.
            last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
        """
        keep, preserve, delete = [], [], []
        for checkpoint, reasons in zip(managed, self.reasons(managed), strict=True):
            if reasons:
                keep.append(checkpoint)
            elif self._is_due(checkpoint.timestamp, last_preserved):
                preserve.append(checkpoint)
                last_preserved = checkpoint.timestamp
            else:
                delete.append(checkpoint)
        return Decision(tuple(keep), tuple(preserve), tuple(delete), last_preserved)

    def plan(self, managed: Sequence[ManagedCheckpoint], last_preserved: float) -> RetentionPlan:
        """What `apply` decides, with the reasons. Arguments are those of `apply`."""
        preserved = set(self.apply(managed, last_preserved).preserve)
        verdicts = []
        for checkpoint, reasons in zip(managed, self.reasons(managed), strict=True):
            is_preserved = checkpoint in preserved
            kept = bool(reasons) or is_preserved
            if is_preserved:
                reasons = [f"preserved, the first of {self.keep_checkpoint_every_n_hours:g} hours; no longer managed"]
            verdicts.append(Verdict(checkpoint.step, checkpoint.prefix, kept, tuple(reasons or [self._why_not()])))
        return RetentionPlan(tuple(verdicts))

    def _why_not(self) -> str:
        newest = self.max_to_keep or 1
        reasons = ["not pinned", "not the newest" if newest == 1 else f"not among the newest {newest}"]
        if self.keep is not None:
            reasons.append(f"not kept by {self.keep!r}")
        return ", ".join(reasons)

    def _is_due(self, timestamp: float, last_preserved: float) -> bool:
        hours = self.keep_checkpoint_every_n_hours
        return bool(hours) and timestamp - (hours or 0.0) * _SECONDS_PER_HOUR >= last_preserved


@dataclass(frozen=True, slots=True)
class Recovered:
    """The list of managed checkpoints with which a manager starts.

    Attributes:
        managed: The list, oldest first.
        last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
        clock_went_back: Seconds by which the clock is behind the last preserved checkpoint; 0 if it is not.
    """

    managed: tuple[ManagedCheckpoint, ...]
    last_preserved: float
    clock_went_back: float


def recover(
    recorded: Sequence[ManagedCheckpoint],
    last_preserved: float,
    now: float,
    is_held: Callable[[str], bool] = lambda prefix: False,
) -> Recovered:
    """Continues a list that an earlier run recorded.

    Checkpoints that are not newer than the last preserved one are no longer managed, unless ``is_held`` says otherwise. If the clock
    was set back, times later than the present count as the present in this comparison. Each checkpoint keeps the time that was
    recorded, so that policies see how far apart checkpoints were saved.

    Args:
        recorded: The list, oldest first.
        last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
        now: The time, in seconds since the epoch.
        is_held: Returns whether the checkpoint with a prefix stays managed, however old it is.

    Example:
        >>> recorded = [ManagedCheckpoint("ckpt-1", 50.0), ManagedCheckpoint("ckpt-2", 60.0)]
        >>> [each.prefix for each in recover(recorded, last_preserved=50.0, now=70.0).managed]
        ['ckpt-2']
    """
    behind = max(0.0, last_preserved - now)
    last_preserved = min(last_preserved, now)
    managed = {each.prefix: each for each in recorded}.values()
    stay = (each for each in managed if min(each.timestamp, now) > last_preserved or is_held(each.prefix))
    return Recovered(tuple(stay), last_preserved, behind)
