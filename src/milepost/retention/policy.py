"""The base class of policies. A policy names checkpoints to keep, and never checkpoints to delete."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.errors import UnsupportedError
from milepost.retention.managed import ManagedCheckpoint


class Policy(abc.ABC):
    """Decides which checkpoints of a list to keep. Policies are joined by ``|``: a checkpoint is kept if any of them keeps it.

    A policy is a pure function: it reads no file and no clock, and it decides about equal lists in the same way. To write your
    own, derive a class from this one and override `kept`.

    Attributes:
        uses_metrics: Whether `kept` uses the metrics. If not, they are not read.

    Example:
        >>> class Primes(Policy):
        ...     uses_metrics = False
        ...     def kept(self, checkpoints):
        ...         found = {}
        ...         for place, each in enumerate(checkpoints):
        ...             if each.step > 1 and all(each.step % number for number in range(2, each.step)):
        ...                 found[place] = "a prime number"
        ...         return found
        >>> saved = [ManagedCheckpoint(f"ckpt-{step}", float(step)) for step in range(1, 7)]
        >>> [saved[place].step for place in Primes().kept(saved)]
        [2, 3, 5]
    """

    uses_metrics = True

    @abc.abstractmethod
    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> Mapping[int, str]:
        """Decides which checkpoints to keep.

        Args:
            checkpoints: All of them, in the order in which they were saved, oldest first.

        Returns:
            The position in ``checkpoints`` of each checkpoint to keep, and the reason in a few words.
        """

    def __or__(self, other: Policy) -> Policy:
        return AnyOf(self, other) if isinstance(other, Policy) else NotImplemented


class AnyOf(Policy):
    """Keeps the checkpoints that any of several policies keeps. It is the same as joining them by ``|``.

    Args:
        *policies: The policies.

    Example:
        >>> from milepost.retention import EverySteps, Newest
        >>> AnyOf(Newest(2), EverySteps(10))
        Newest(n=2) | EverySteps(n=10, exact=True)
    """

    def __init__(self, *policies: Policy) -> None:
        for policy in policies:
            if not isinstance(policy, Policy):
                raise wrong_argument(self, "policies", policy, "policies of milepost.retention, or your own")
        self.policies: tuple[Policy, ...] = tuple(
            part for policy in policies for part in (policy.policies if type(policy) is AnyOf else (policy,))
        )

    @property
    def uses_metrics(self) -> bool:  # type: ignore[override]  # a constant in other policies; here it depends on the parts
        """Whether one of the policies uses the metrics."""
        return any(each.uses_metrics for each in self.policies)

    def kept(self, checkpoints: Sequence[ManagedCheckpoint]) -> dict[int, str]:
        reasons: dict[int, list[str]] = {}
        for policy in self.policies:
            for position, reason in policy.kept(checkpoints).items():
                reasons.setdefault(position, []).append(reason)
        return {position: "; ".join(texts) for position, texts in reasons.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyOf) and other.policies == self.policies

    def __hash__(self) -> int:
        return hash(self.policies)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.policies))


def check_count(policy: Policy, name: str, value: Any) -> None:
    """Raises an error unless an argument is a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wrong_argument(policy, name, value, "a whole number from 1 on")


def check_hours(policy: Policy, value: Any) -> None:
    """Raises an error unless an argument is a number of hours greater than 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise wrong_argument(policy, "hours", value, "a number of hours greater than 0")


def wrong_argument(policy: Policy, name: str, value: Any, expected: str) -> UnsupportedError:
    """The error for an argument of a policy."""
    return UnsupportedError(
        f"{type(policy).__name__}() does not accept this argument",
        key=name,
        expected=expected,
        found=f"{value!r:.80} of type {type(value).__name__}",
        remedy=f"pass {expected}",
    )
