"""Policies that decide which checkpoints to keep. They are pure functions of lists, and use no files and no clock.

=============  ======================================================================================
`policy`       what a policy is, and how policies are joined by ``|``
`by_age`       `Newest`, `EveryHours`, `Recent`
`by_step`      `EverySteps`, `Steps`
`by_metric`    `Best`, `Unmeasured`
`rules`        the rules of TensorFlow's ``CheckpointManager``, and what else a manager keeps
`plan`         what a manager would delete, and why
=============  ======================================================================================

Example:
    >>> from milepost.retention import Best, EverySteps
    >>> policy = Best(2, by="loss", mode="min") | EverySteps(1000)
    >>> saved = [
    ...     ManagedCheckpoint(f"ckpt-{step}", float(step), {"loss": loss})
    ...     for step, loss in [(500, 0.4), (1000, 0.9), (1500, 0.2), (2000, 0.3), (2500, 0.5)]
    ... ]
    >>> {saved[place].step: reason for place, reason in sorted(policy.kept(saved).items())}
    {1000: 'a multiple of 1000', 1500: 'the best by loss: 0.2', 2000: 'best 2 of 2 by loss: 0.3; a multiple of 1000'}
"""

from milepost.retention.by_age import EveryHours, Newest, Recent
from milepost.retention.by_metric import Best, Unmeasured
from milepost.retention.by_step import EverySteps, Steps
from milepost.retention.managed import ManagedCheckpoint
from milepost.retention.policy import Policy

__all__ = [
    "Best",
    "EveryHours",
    "EverySteps",
    "ManagedCheckpoint",
    "Newest",
    "Policy",
    "Recent",
    "Steps",
    "Unmeasured",
]
