"""The trainers of Lightning whose runs cannot be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milepost.adapters.lightning.private import is_trial
from milepost.errors import UnsupportedError

_SHARDED: Final = ("FSDP", "DeepSpeed", "ModelParallel", "XLA")
_PRUNED: Final = (
    "this callback takes the masks of pruned weights out of every checkpoint, so a resumed run would train other weights",
    "prune the model after training, or with torch.nn.utils.prune before the Trainer is made",
)
_SEARCHED: Final = (
    "this callback searches again when a run is resumed, and Lightning then begins the run anew",
    "search before fit(), with a Trainer of its own: lightning.pytorch.tuner.Tuner(trainer)",
)
_CALLBACKS: Final[Mapping[str, tuple[str, str]]] = {
    "ModelPruning": _PRUNED,
    "LearningRateFinder": _SEARCHED,
    "BatchSizeFinder": _SEARCHED,
}


def refuse(trainer: Any) -> None:
    """Raises an error if a run of this trainer would not continue as it was.

    Raises:
        UnsupportedError: Its strategy spreads the state over processes, or one of its callbacks changes a run that is resumed.
    """
    strategy = type(trainer.strategy).__name__
    if strategy.startswith(_SHARDED):
        raise UnsupportedError(
            "the state of this strategy is spread over processes, and each process gets only its own part from Lightning",
            expected="a strategy in which each process has the whole model, such as DDP",
            found=strategy,
            remedy="save the model and optimizer with milepost.Checkpoint in a loop of your own, or keep Lightning's checkpoints",
        )
    for callback in trainer.callbacks:
        names = {kind.__name__ for kind in type(callback).__mro__}
        for name in names & set(_CALLBACKS):
            message, remedy = _CALLBACKS[name]
            if not is_trial(callback):
                raise UnsupportedError(
                    message, expected=f"no {name} beside CheckpointCallback", found=name, remedy=remedy
                )
