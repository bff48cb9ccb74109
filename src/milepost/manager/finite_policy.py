"""Which values make a checkpoint one that is not finite.

A checkpoint is finite if none of its tensors has NaN, and none has infinity that had none in the first checkpoint of the run. So masks of
attention, which hold ``-inf`` from the beginning, do not count, and neither does the best value of a scheduler that begins as infinity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from milepost.engine.arguments import wrong
from milepost.engine.translation import Names, translation


@dataclass(frozen=True, slots=True)
class KeepLastFinite:
    """Keeps the last checkpoint without NaN and infinity, for ``CheckpointManager(nonfinite=...)``.

    A checkpoint is not finite if a tensor of it has NaN, or has infinity and had none in the first checkpoint of the run. Numbers of Python do not
    count. Such a checkpoint is saved, marked and warned of, and it never leads to the deletion of the last finite one.

    Attributes:
        restore: Whether `CheckpointManager.restore_or_initialize`, and whatever else continues a run from its newest checkpoint, takes the last
            finite one. Otherwise it takes the newest, and warns if that is not finite.
        ignore: Names of values that do not count, as in `milepost.Checkpoint.restore`: a name includes everything below it, and ``*`` stands for
            any text.

    Raises:
        UnsupportedError: An argument has a type or value that is not accepted.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> checkpoint = milepost.Checkpoint(weights=milepost.Variable(np.ones(3)))
        >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), 1, nonfinite=KeepLastFinite(restore=True))
        >>> path = manager.save(10)
        >>> weights = checkpoint.weights.assign(np.full(3, np.nan))
        >>> path = manager.save(20)
        >>> manager.steps, manager.nonfinite(20), manager.last_finite_step
        ([10, 20], ('weights',), 10)
        >>> manager.restore_or_initialize().rpartition("/")[2]
        'ckpt-10'
    """

    restore: bool = False
    ignore: Names = ()
    _ignores: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.restore, bool):
            raise wrong("restore", self.restore, "True or False")
        object.__setattr__(self, "_ignores", translation((), self.ignore, None, False).ignores)

    def counts(self, name: str) -> bool:
        """Whether a value of this name counts."""
        return not self._ignores(name)


def finite_policy(nonfinite: Any) -> KeepLastFinite | None:
    """The policy that an argument ``nonfinite`` means; None looks at no value.

    Raises:
        UnsupportedError: It is neither None nor ``"keep_last_finite"`` nor a `KeepLastFinite`.
    """
    if nonfinite is None or isinstance(nonfinite, KeepLastFinite):
        return nonfinite
    if nonfinite != "keep_last_finite":
        raise wrong("nonfinite", nonfinite, "None, 'keep_last_finite', or milepost.KeepLastFinite(restore=True)")
    return KeepLastFinite()
