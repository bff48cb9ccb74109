"""Policies that keep checkpoints by number. The numbers are training steps if the program passes steps to ``save()``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from milepost.retention.managed import ManagedCheckpoint
from milepost.retention.policy import Policy, check_count, wrong_argument


@dataclass(frozen=True)
class EverySteps(Policy):
    """Keeps the checkpoints whose number is a multiple of ``n``.

    A checkpoint's number is the training step if the program passes that to ``save()``. Otherwise it is the number of the save, and
    this keeps every n-th save.

    Args:
        n: Steps between two checkpoints that are kept.
        exact: Whether only multiples of ``n`` are kept. If not, the first checkpoint at or after each multiple is kept, so one is kept
            for each ``n`` steps, whatever the steps of the saves are.

    Raises:
        UnsupportedError: ``n`` is not a whole number from 1 on.

    Example:
        >>> saved = [ManagedCheckpoint(f"ckpt-{step}", float(step)) for step in (990, 1005, 1020, 1995, 2000)]
        >>> [saved[place].step for place in EverySteps(1000).kept(saved)]
        [2000]
        >>> [saved[place].step for place in EverySteps(1000, exact=False).kept(saved)]
        [1005, 2000]
    """

    n: int
    exact: bool = True
    uses_metrics = False

    def __post_init__(self) -> None:
        check_count(self, "n", self.n)

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        if self.exact:
            reason = f"a multiple of {self.n}"
            return {
                position: reason
                for position, checkpoint in enumerate(checkpoints)
                if checkpoint.step >= 0 and checkpoint.step % self.n == 0
            }
        first: dict[int, int] = {}
        for position, checkpoint in enumerate(checkpoints):
            multiple = checkpoint.step // self.n * self.n
            if multiple > 0 or checkpoint.step == 0:
                first_position = first.get(multiple)
                if first_position is None or checkpoint.step < checkpoints[first_position].step:
                    first[multiple] = position
        return {position: f"the first from {multiple} on" for multiple, position in sorted(first.items())}


@dataclass(frozen=True)
class Steps(Policy):
    """Keeps the checkpoints with these numbers.

    Args:
        steps: The numbers.

    Raises:
        UnsupportedError: They are not whole numbers.

    Example:
        >>> saved = [ManagedCheckpoint(f"ckpt-{step}", float(step)) for step in (1, 10, 100)]
        >>> [saved[place].step for place in Steps([10, 20]).kept(saved)]
        [10]
    """

    steps: Iterable[int]
    uses_metrics = False

    def __post_init__(self) -> None:
        try:
            steps = frozenset(self.steps)
        except TypeError:
            raise wrong_argument(self, "steps", self.steps, "a list of whole numbers") from None
        if any(isinstance(each, bool) or not isinstance(each, int) for each in steps):
            raise wrong_argument(self, "steps", self.steps, "a list of whole numbers")
        object.__setattr__(self, "steps", steps)

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        wanted = frozenset(self.steps)
        return {
            position: "one of the steps to keep" for position, each in enumerate(checkpoints) if each.step in wanted
        }
