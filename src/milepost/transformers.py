"""Hugging Face's ``Trainer``: one line makes ``train()`` resumable at any step.

::

    trainer = Trainer(model, arguments, train_dataset=data)
    milepost.transformers.attach(trainer, "./run", every_steps=500, on_sigterm=True)
    trainer.train()
"""

from __future__ import annotations

from collections.abc import Collection as _Collection
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import Literal as _Literal

import transformers as _transformers  # noqa: F401 - its version is asked for before its private names

from milepost.engine.options import CheckpointOptions
from milepost.errors import UnsupportedError as _UnsupportedError
from milepost.graph.frameworks import whole_import as _whole_import
from milepost.manager import CheckpointManager
from milepost.manager.committed import OnCommitted as _OnCommitted
from milepost.manager.finite_policy import KeepLastFinite as _KeepLastFinite
from milepost.manager.tolerance import Tolerate as _Tolerate
from milepost.retention import Policy
from milepost.saving.files import Source as _Source
from milepost.trainers.loaders import is_watched as _is_watched
from milepost.trainers.runs import PathLike as _PathLike
from milepost.trainers.runs import TrainerRun as _TrainerRun

with _whole_import("transformers"):
    from milepost.adapters.transformers import private as _private
    from milepost.trainers.transformers import resumable as _resumable

__all__ = ["attach"]


def attach(
    trainer: _Any,
    directory: _PathLike,
    *,
    every_steps: int | None = None,
    every_epochs: int | None = 1,
    every_seconds: float | None = None,
    max_to_keep: int | None = 3,
    keep: Policy | None = None,
    on_sigterm: bool = False,
    on_signal: int | _Collection[int] | None = None,
    grace_seconds: float | None = None,
    objects: _Mapping[str, _Any] | None = None,
    on_failure: _Literal["raise"] | _Tolerate = "raise",
    nonfinite: _Literal["keep_last_finite"] | _KeepLastFinite | None = None,
    on_committed: _OnCommitted | None = None,
    files: _Mapping[str, _Source] | None = None,
    options: CheckpointOptions | None = None,
) -> CheckpointManager:
    """Makes ``trainer.train()`` resumable: it saves the run, and continues it in the next process.

    A checkpoint holds everything that ``Trainer`` saves, and what it leaves out: the position in the data, the random state with
    which batches were read ahead, and the losses that its logs average. So a run that was killed and started again computes the same
    bits as a run that was not interrupted.

    ``train()`` restores the newest good checkpoint of the directory by itself. The trainer's own checkpoints
    (``save_strategy``) are not touched; ``save_strategy="no"`` turns them off.

    Args:
        trainer: A ``transformers.Trainer``, or an object of a class derived from it. Its class is replaced by one derived from it.
        directory: The directory of the run. Each run has its own.
        every_steps: Optimizer steps between two saves, or None.
        every_epochs: Epochs between two saves, or None.
        every_seconds: Seconds between two saves, or None.
        max_to_keep: How many of the newest checkpoints to keep, or None to let ``keep`` decide alone.
        keep: Which others to keep, such as ``milepost.retention.Best(3, by="eval_loss", mode="min")``. A checkpoint has
            metrics if it was saved after an evaluation.
        on_sigterm: Whether SIGTERM saves the run and ends ``train()`` after the step.
        on_signal: Other signals that mean the same, such as ``signal.SIGUSR1``, or several in a list.
        grace_seconds: Seconds after the signal, after which the process ends even if a step or the last save has not. It ends with 128 and
            the number of the signal, and the checkpoint before that save stays. None for no limit.
        objects: What the program holds beside the trainer, by name, such as averaged weights or a second optimizer of a class that
            is derived from ``Trainer``: whatever a `milepost.Checkpoint` saves. ``train()`` restores it before training begins.
        on_failure: What becomes of a save that fails or hangs: ``"raise"`` ends ``train()``, and `milepost.Tolerate` lets it go on, within limits.
        nonfinite: What becomes of a state with NaN or infinity, as for `milepost.CheckpointManager`. `milepost.KeepLastFinite` says whether the run
            continues from the last finite checkpoint.
        on_committed: A function that is told of each checkpoint that is saved, as for `milepost.CheckpointManager`.
        files: Small files to save with each checkpoint, such as ``{"tokenizer": directory}``, as for `milepost.CheckpointManager.save`. They are
            read at each save.
        options: Options of all saves and restores, such as ``CheckpointOptions(enable_async=True)``.

    Returns:
        A manager of the checkpoints, numbered by the optimizer step. Its ``reload()`` shows what ``train()`` has saved since.

    Raises:
        ArgumentError: A ``ValueError``: an interval is not greater than 0, or a name in ``objects`` is reserved.
        UnsupportedError: ``trainer`` is not a ``Trainer``, or it was attached before, or an argument has a type that is not accepted.
    """
    if not hasattr(trainer, "callback_handler") or isinstance(trainer, _resumable.Resumable):
        raise _UnsupportedError(
            "attach() makes a transformers.Trainer resumable, once",
            expected="a transformers.Trainer",
            found=f"a {type(trainer).__name__}",
            remedy="pass a Trainer, and only once; for another directory, make another Trainer",
        )
    run = _TrainerRun(
        directory,
        _resumable.NAMES,
        _resumable.OWN_NAMES,
        max_to_keep=max_to_keep,
        keep=keep,
        every_epochs=every_epochs,
        every_steps=every_steps,
        every_seconds=every_seconds,
        on_sigterm=on_sigterm,
        on_signal=on_signal,
        grace_seconds=grace_seconds,
        objects=objects,
        on_failure=on_failure,
        nonfinite=nonfinite,
        on_committed=on_committed,
        files=files,
        options=options,
    )
    kind = type(trainer)
    trainer.__class__ = type(kind.__name__, (_resumable.Resumable, kind), {"__module__": kind.__module__})
    _resumable.hold(trainer, _resumable.Attached(run))
    return run.manager


_private.skip_by(_is_watched)
