"""Lightning: a callback that makes ``Trainer.fit()`` resumable at any batch, and a plugin that writes its files.

The callback saves the run, and continues it when the program is started again::

    checkpoints = milepost.lightning.CheckpointCallback("./run", every_steps=500, on_sigterm=True)
    trainer = Trainer(max_epochs=10, callbacks=[checkpoints])
    trainer.fit(model, loader)

The plugin writes the files of ``ModelCheckpoint`` and ``trainer.save_checkpoint()``, for programs that keep using these::

    trainer = Trainer(plugins=[milepost.lightning.MilepostIO()])

While this module is imported, ``load_from_checkpoint()`` reads both. It is used with the package ``lightning``, or with
``pytorch_lightning`` if the program has imported that and not the other.
"""

from __future__ import annotations

import copy as _copy
import os as _os
from collections.abc import Collection as _Collection
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import Literal as _Literal

from milepost.adapters.lightning import private as _private
from milepost.engine.options import CheckpointOptions
from milepost.errors import CheckpointNotFoundError as _CheckpointNotFoundError
from milepost.errors import UnsupportedError as _UnsupportedError
from milepost.graph.frameworks import require as _require
from milepost.manager import CheckpointManager
from milepost.manager.committed import OnCommitted as _OnCommitted
from milepost.manager.finite_policy import KeepLastFinite as _KeepLastFinite
from milepost.manager.tolerance import Tolerate as _Tolerate
from milepost.retention import Policy
from milepost.saving.background import BackgroundWriter as _BackgroundWriter
from milepost.saving.files import Source as _Source
from milepost.trainers import paths as _paths
from milepost.trainers.lightning import dicts as _dicts
from milepost.trainers.lightning.fit import ResumableFit as _ResumableFit
from milepost.trainers.lightning.refusals import refuse as _refuse
from milepost.trainers.runs import PathLike as _PathLike
from milepost.trainers.runs import TrainerRun as _TrainerRun

__all__ = ["CheckpointCallback", "MilepostIO"]

_lightning = _private.package()
_require(_lightning.__name__.partition(".")[0])


class CheckpointCallback(_lightning.callbacks.Checkpoint):  # type: ignore[misc, name-defined]  # its type is not known
    """Makes ``Trainer.fit()`` resumable: saves the run, and continues it in the next process.

    A checkpoint holds all that Lightning saves, and what Lightning leaves out: the position in the data, the random state,
    gradients that are still being accumulated, the values that ``self.log()`` averages over the epoch, metrics of callbacks and
    of torchmetrics, and when the loaders were made. So a run that was killed and started again computes the same bits as a run that was not interrupted.

    ``fit()`` restores the newest good checkpoint of the directory by itself. Pass it no ``ckpt_path``.

    Batches are counted over the whole run, and number the checkpoints. A save is made after the validation, the schedulers and all
    hooks that follow its batch; at the last batch of an epoch, after those of the epoch; and at the end, after those of the run.

    Args:
        directory: The directory of the run. Each run has its own.
        every_steps: Batches between two saves, or None.
        every_epochs: Epochs between two saves, or None.
        every_seconds: Seconds between two saves, or None.
        max_to_keep: How many of the newest checkpoints to keep, or None to let ``keep`` decide alone.
        keep: Which others to keep, such as ``milepost.retention.Best(3, by="val_loss", mode="min")``. The metrics are
            ``trainer.callback_metrics`` after a validation; without validation, after an epoch.
        on_sigterm: Whether SIGTERM saves the run and ends ``fit()``. It waits for a validation that is running.
        on_failure: What becomes of a save that fails or hangs: ``"raise"`` ends ``fit()``, and `milepost.Tolerate` lets it go on, within limits.
        nonfinite: What becomes of a state with NaN or infinity, as for `milepost.CheckpointManager`. `milepost.KeepLastFinite` says whether the run
            continues from the last finite checkpoint.
        on_committed: A function that is told of each checkpoint that is saved, as for `milepost.CheckpointManager`.
        files: Small files to save with each checkpoint, such as ``{"tokenizer": directory}``, as for `milepost.CheckpointManager.save`. They are
            read at each save.
        on_signal: Other signals that mean the same, such as ``signal.SIGUSR1``, or several in a list.
        grace_seconds: Seconds after the signal, after which the process ends even if a step or the last save has not. It ends with 128 and
            the number of the signal, and the checkpoint before that save stays. None for no limit.
        options: Options of all saves and restores, such as ``CheckpointOptions(enable_async=True)``.

    Raises:
        ArgumentError: A ``ValueError``: an interval is not greater than 0.
        UnsupportedError: An argument has a type that is not accepted.
    """

    def __init__(
        self,
        directory: _PathLike,
        *,
        every_steps: int | None = None,
        every_epochs: int | None = 1,
        every_seconds: float | None = None,
        max_to_keep: int | None = 3,
        keep: Policy | None = None,
        on_sigterm: bool = False,
        on_failure: _Literal["raise"] | _Tolerate = "raise",
        nonfinite: _Literal["keep_last_finite"] | _KeepLastFinite | None = None,
        on_committed: _OnCommitted | None = None,
        files: _Mapping[str, _Source] | None = None,
        on_signal: int | _Collection[int] | None = None,
        grace_seconds: float | None = None,
        options: CheckpointOptions | None = None,
    ) -> None:
        super().__init__()
        self._run = _TrainerRun(
            directory,
            (_dicts.RUN, "epochs"),
            ("random", "loaders"),
            max_to_keep=max_to_keep,
            keep=keep,
            every_epochs=every_epochs,
            every_steps=every_steps,
            every_seconds=every_seconds,
            on_sigterm=on_sigterm,
            on_failure=on_failure,
            nonfinite=nonfinite,
            on_committed=on_committed,
            files=files,
            on_signal=on_signal,
            grace_seconds=grace_seconds,
            options=options,
        )
        self._fit: _ResumableFit | None = None

    @property
    def manager(self) -> CheckpointManager:
        """The manager of the checkpoints."""
        return self._run.manager

    @property
    def best_model_path(self) -> str:
        """The path of the best checkpoint by the policy ``keep``, for ``ckpt_path="best"``; without one, of the newest."""
        manager = self.manager
        try:
            step = manager.best_step()
        except _UnsupportedError:  # there is no policy by a metric
            return manager.latest_checkpoint or ""
        paths = dict(zip(manager.steps, manager.checkpoints, strict=True))
        return "" if step is None else paths[step]

    @property
    def was_terminated(self) -> bool:
        """Whether the last ``fit()`` received SIGTERM, saved the run and stopped."""
        return self._fit is not None and self._fit.was_terminated

    def setup(self, trainer: _Any, pl_module: _Any, stage: str) -> None:
        """Finds the checkpoint to resume from. Called by Lightning."""
        if stage == "fit":
            _refuse(trainer)
            self._fit = _ResumableFit(trainer, self._run, self._run.begin(catch=False))

    def on_train_start(self, trainer: _Any, pl_module: _Any) -> None:
        """Begins to save, and to catch SIGTERM. Called by Lightning."""
        if self._fit is not None:
            self._fit.begin()

    def on_validation_end(self, trainer: _Any, pl_module: _Any) -> None:
        """Takes the metrics of a validation for the next save. Called by Lightning."""
        if self._fit is not None and not trainer.sanity_checking and trainer.state.fn == "fit":
            self._fit.has_new_metrics = True

    def on_exception(self, trainer: _Any, pl_module: _Any, exception: BaseException) -> None:
        """Stops catching signals and releases loaders. Called by Lightning."""
        if self._fit is not None:
            self._fit.end()

    def teardown(self, trainer: _Any, pl_module: _Any, stage: str) -> None:
        """Stops catching signals and releases loaders. Called by Lightning."""
        if self._fit is not None and stage == "fit":
            self._fit.after_fit()


class MilepostIO(_lightning.plugins.CheckpointIO):  # type: ignore[misc, name-defined]  # its type is not known
    """Writes and reads the files of ``ModelCheckpoint`` and ``trainer.save_checkpoint()``.

    What Lightning saves under a path becomes a directory of that name with a checkpoint in it: durable when the save returns,
    complete or absent, and with checksums, which are verified before anything is restored. Files that Lightning wrote earlier with
    ``torch.save`` can be read too.

    Everything in the dict is plain data: numbers, text, containers, arrays and tensors. Another object, such as one among the
    hyperparameters, is refused by name. Tensors are read into the memory of the CPU unless ``map_location`` names a device.

    Args:
        asynchronous: Whether a save copies the values and returns, and a thread writes them. The next save, load or the end of
            ``fit()`` waits for it and raises its error.
    """

    def __init__(self, asynchronous: bool = False) -> None:
        super().__init__()
        self._asynchronous = asynchronous
        self._writer = _BackgroundWriter()

    def save_checkpoint(self, checkpoint: dict[str, _Any], path: _PathLike, storage_options: _Any = None) -> None:
        """Saves a dict under a path.

        Args:
            checkpoint: What Lightning saves.
            path: The path of the checkpoint.
            storage_options: None.

        Raises:
            TypeError: ``storage_options`` are given.
            UnsupportedError: The dict holds something that is not plain data.
            StorageError: The files cannot be written. What was there is unchanged.
        """
        if storage_options is not None:
            raise TypeError("MilepostIO takes no storage_options: leave them out of save_checkpoint()")
        with self._writer.exclusive():
            if not self._asynchronous:
                _paths.write_path(checkpoint, _os.fspath(path))
            else:
                copy = _copy.deepcopy(checkpoint)
                self._writer.submit(lambda: _paths.write_path(copy, _os.fspath(path)))

    def load_checkpoint(
        self, path: _PathLike, map_location: _Any = None, weights_only: bool | None = None
    ) -> dict[str, _Any]:
        """Loads the dict that was saved under a path.

        Args:
            path: A path that Lightning has saved to, with this plugin or its own, or a checkpoint of `CheckpointCallback`.
            map_location: A device for the tensors. Functions and dicts have an effect on files of ``torch.save`` only.
            weights_only: For files of ``torch.save``.

        Raises:
            CheckpointNotFoundError: There is no checkpoint. This is a ``FileNotFoundError``.
            CorruptCheckpointError: The checkpoint is damaged.
        """
        self.sync()
        path = _os.fspath(path)
        contents = _read(path, map_location)
        if contents is not None:
            return contents
        if "://" not in path and not _os.path.isfile(path):
            raise _CheckpointNotFoundError(
                "there is no checkpoint", file=path, expected="a path that Lightning has saved to"
            )
        loaded: dict[str, _Any] = _private.load_by_torch(path, map_location, weights_only)
        return loaded

    def remove_checkpoint(self, path: _PathLike) -> None:
        """Removes what is saved under a path.

        Args:
            path: The path.
        """
        self.sync()
        _paths.remove_path(_os.fspath(path))

    def teardown(self) -> None:
        """Waits for the save in progress. Called by Lightning."""
        self.sync()

    def sync(self) -> None:
        """Waits for the save in progress, if any, and raises its error."""
        self._writer.wait()


def _read(path: _Any, map_location: _Any) -> dict[str, _Any] | None:
    """The dict under a path; None if there is no checkpoint of milepost."""
    if not isinstance(path, (str, _os.PathLike)) or not _paths.is_checkpoint(_os.fspath(path)):
        return None
    state = _dicts.read_dict(_os.fspath(path))
    if isinstance(map_location, str) or hasattr(map_location, "type"):
        return _dicts.moved(state, lambda tensor: tensor.to(map_location))  # type: ignore[no-any-return]
    return state


_private.load_by(_read)
