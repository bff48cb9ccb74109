"""Milepost for programs that ``import keras``, Keras 2 or 3: a callback that saves and resumes ``fit()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras as _keras

from milepost.callbacks.checkpoints import FitCheckpoints as _FitCheckpoints
from milepost.graph.frameworks import require as _require
from milepost.graph.frameworks import whole_import as _whole_import

if TYPE_CHECKING:
    _Base = _FitCheckpoints
else:
    _require("keras")
    with _whole_import("keras"):
        if int(_keras.__version__.partition(".")[0]) >= 3:
            from milepost.callbacks.keras3 import Keras3Checkpoints as _Base
        else:
            from milepost.callbacks.keras2 import keras2_checkpoints as _keras2_checkpoints

            _Base = _keras2_checkpoints(_keras)

__all__ = ["CheckpointCallback"]


class CheckpointCallback(_Base):
    """Saves a run of ``fit()``, and resumes it in another process exactly where it was interrupted.

    Each checkpoint holds the model, its optimizer, the compiled metrics of the present epoch, the epoch and batch, the
    position in the data, the history of finished epochs, the state of the other callbacks, and the random state of
    Keras, Python, NumPy and PyTorch. A directory is one run: ``fit(epochs=n)`` trains until the run has ``n`` epochs,
    in any number of processes. A run that another callback ended, such as ``EarlyStopping``, is not trained further
    when it is started again.

    Pass the data through `resumable`. Otherwise runs can be saved and resumed only between epochs. This callback acts
    after all others, whatever its position in the list.

    When a run is resumed in the middle of an epoch, the other callbacks get the batches of that epoch that are already
    trained a second time, with the logs of the last of them. `is_catching_up` is true during this time.

    Args:
        directory: The directory of the checkpoints. The checkpoints of the best epochs are in ``best`` below it.
        every_epochs: Save after each such number of epochs.
        every_steps: Save after each such number of batches.
        every_seconds: Save at the first batch after each such number of seconds.
        on_sigterm: When the process receives SIGTERM, save after the present batch and stop training. ``fit()``
            restores the previous handler when it returns, and calls it if it is a function of the program. Works only if ``fit()`` runs in
            the main thread.
        on_signal: Other signals that mean the same, such as ``signal.SIGUSR1``, or several in a list.
        grace_seconds: Seconds after the signal, after which the process ends even if a step or the last save has not. It ends with 128 and
            the number of the signal, and the checkpoint before that save stays. None for no limit.
        monitor: The name of a metric in the logs of epochs. The epochs with its best values are saved and kept too.
        mode: ``"min"``, ``"max"``, or ``"auto"``, which decides by the metric and then by its name.
        keep_best: How many of the best epochs to keep.
        max_to_keep: How many of the newest other checkpoints to keep, or None to keep all.
        keep_checkpoint_every_n_hours: Hours. Of the checkpoints that would be deleted, one is preserved for each such
            period.
        keep: Which checkpoints to keep in addition to the newest ``max_to_keep``: policies of `milepost.retention`, such as
            ``Best(3, by="val_loss", mode="min")``. With ``max_to_keep=None`` it decides alone. The logs of an epoch are the metrics of
            the checkpoint after it, so only checkpoints between epochs can be the best. Unlike ``monitor``, this saves nothing more.
        learning_rate: What to do if the program sets a different learning rate than when the run began: ``"program"``
            uses the program's, ``"saved"`` uses the saved one, and None raises a `MismatchError` in ``fit()``.
        continue_ended: Whether to continue a run that another callback ended.
        objects: Other trackable objects to save with the run, by name.
        on_failure: What becomes of a save that fails or hangs: ``"raise"`` ends ``fit()``, and `milepost.Tolerate` lets it go on, within limits.
        nonfinite: What becomes of a state with NaN or infinity, as for `milepost.CheckpointManager`. `milepost.KeepLastFinite` says whether the run
            continues from the last finite checkpoint.
        on_committed: A function that is told of each checkpoint that is saved, as for `milepost.CheckpointManager`.
        files: Small files to save with each checkpoint, such as ``{"tokenizer": directory}``, as for `milepost.CheckpointManager.save`. They are
            read at each save.
        options: How to save and restore. With ``CheckpointOptions(enable_async=True)``, saves are asynchronous.

    Raises:
        ValueError: An interval is not positive, ``mode`` or ``learning_rate`` is unknown, or a name in ``objects`` is
            reserved.

    Example:
        >>> import tempfile, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(optimizer="adam", loss="mse")
        >>> checkpoints = CheckpointCallback(tempfile.mkdtemp(), every_steps=100, on_sigterm=True)
        >>> data = checkpoints.resumable(np.ones((64, 2)), np.ones((64, 1)), batch_size=8)
        >>> history = model.fit(data, epochs=2, verbose=0, callbacks=[checkpoints])
        >>> history.epoch, len(checkpoints.manager.checkpoints)
        ([0, 1], 2)
    """
