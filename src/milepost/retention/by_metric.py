"""Policies that keep checkpoints by the metrics that were saved with them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from milepost.errors import KeyNotFoundError
from milepost.graph.description import metric
from milepost.retention.managed import ManagedCheckpoint
from milepost.retention.policy import Policy, check_count, wrong_argument

Mode = Literal["min", "max"]
By = str | Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Best(Policy):
    """Keeps the checkpoints with the best values of a metric.

    A checkpoint without the metric is never among the best, nor is one whose value is not a finite number. Of equal values, the one
    that was saved first is better.

    Args:
        n: How many.
        by: The name of the metric, as it was passed to ``save(metrics=...)``, or a function of all metrics that returns a number.
        mode: ``"min"`` if lower values are better, ``"max"`` if higher ones are.

    Raises:
        UnsupportedError: An argument has a type or value that is not accepted.

    Example:
        >>> saved = [ManagedCheckpoint(f"ckpt-{n}", n, {"loss": loss}) for n, loss in enumerate([0.5, 0.1, float("nan"), 0.3])]
        >>> [saved[place].step for place in Best(2, by="loss", mode="min").kept(saved)]
        [1, 3]
    """

    n: int
    by: By
    mode: Mode

    def __post_init__(self) -> None:
        check_count(self, "n", self.n)
        check_ranking(self, self.by, self.mode)

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        name = self.by if isinstance(self.by, str) else getattr(self.by, "__name__", "the function")
        reasons = {}
        for rank, position in enumerate(ranked(checkpoints, self.by, self.mode)[: self.n], start=1):
            which = "the best" if rank == 1 else f"best {rank} of {self.n}"
            reasons[position] = f"{which} by {name}: {metric(value_of(checkpoints[position], self.by) or 0.0)}"
        return reasons


@dataclass(frozen=True)
class Unmeasured(Policy):
    """Keeps the checkpoints that have no finite value of a metric, such as those that were saved before the first evaluation.

    Args:
        by: As for `Best`.

    Raises:
        UnsupportedError: ``by`` is neither a name nor a function.

    Example:
        >>> saved = [ManagedCheckpoint("ckpt-1", 1.0), ManagedCheckpoint("ckpt-2", 2.0, {"loss": 0.5})]
        >>> Unmeasured("loss").kept(saved)
        {0: 'without loss'}
    """

    by: By

    def __post_init__(self) -> None:
        check_ranking(self, self.by, "min")

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        reason = f"without {self.by}" if isinstance(self.by, str) else "without the metric"
        return {position: reason for position, each in enumerate(checkpoints) if value_of(each, self.by) is None}


def check_ranking(policy: Policy, by: Any, mode: Any) -> None:
    """Raises an error unless ``by`` and ``mode`` have accepted values."""
    if not isinstance(by, str) and not callable(by):
        raise wrong_argument(policy, "by", by, "the name of a metric, or a function of the metrics")
    if mode not in ("min", "max"):
        raise wrong_argument(policy, "mode", mode, "'min' if lower values are better, or 'max'")


def check_known(by: str, checkpoints: Sequence[ManagedCheckpoint], directory: str) -> None:
    """Checks the name of a metric. One that no checkpoint has is a mistake if they have others.

    Raises:
        KeyNotFoundError: It is such a name.
    """
    known = dict.fromkeys(name for each in checkpoints for name in each.metrics or ())
    if known and by not in known:
        near = difflib.get_close_matches(by, known, 1)
        raise KeyNotFoundError(
            "no checkpoint has this metric",
            key=by,
            file=directory,
            found=", ".join(map(repr, known)),
            remedy=f"did you mean {near[0]!r}?"
            if near
            else "name one of the metrics that were passed to save(metrics=...)",
        )


def ranked(checkpoints: Sequence[ManagedCheckpoint], by: By, mode: Mode) -> list[int]:
    """The positions of the checkpoints that have a finite value, the best first, and of equal ones the oldest first."""
    sign = 1.0 if mode == "min" else -1.0
    values = {position: value_of(each, by) for position, each in enumerate(checkpoints)}
    measured = {position: sign * value for position, value in values.items() if value is not None}
    return sorted(measured, key=lambda position: (measured[position], position))


def value_of(checkpoint: ManagedCheckpoint, by: By) -> float | None:
    """The value of a metric, or None if there is no value that can be compared."""
    if checkpoint.metrics is None:
        return None
    try:
        value = float(checkpoint.metrics[by] if isinstance(by, str) else by(checkpoint.metrics))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
