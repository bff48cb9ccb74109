"""Milepost for programs that ``import keras``, of either generation: a callback that saves and resumes ``fit()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras as _keras

from milepost.callbacks.checkpoints import FitCheckpoints as _FitCheckpoints
from milepost.graph.frameworks import import_adapters as _import_adapters
from milepost.graph.frameworks import whole_import as _whole_import

if TYPE_CHECKING:
    _Base = _FitCheckpoints
else:
    _import_adapters()  # in their order, before the callback needs one of them
    with _whole_import("keras"):
        if int(_keras.__version__.partition(".")[0]) >= 3:
            from milepost.callbacks.keras3 import Keras3Checkpoints as _Base
        else:
            from milepost.callbacks.keras2 import keras2_checkpoints as _keras2_checkpoints

            _Base = _keras2_checkpoints(_keras)

__all__ = ["CheckpointCallback"]


class CheckpointCallback(_Base):
    """Saves a run of ``fit()``, and resumes it in another process as if nothing had happened.

    One commit holds the model, its optimizer and compiled metrics in the middle of their epoch, epoch and batch, the place
    in the data, the history of finished epochs, the state of the other callbacks, and the random state of Keras, Python,
    NumPy and PyTorch. A directory is one run: ``fit(epochs=n)`` trains until there are ``n`` epochs in all, in however many
    processes. A run that another callback ended, such as ``EarlyStopping``, trains no further when it is started again.

    The data is to be wrapped by `resumable`. Without that, runs can be saved and resumed between epochs only. The callback
    acts as the last one, wherever it is in the list.

    While a run that was interrupted in the middle of an epoch is taken up, the other callbacks see the batches of that
    epoch that were trained before once more, with the logs of the last of them; `is_catching_up` is true meanwhile.

    Args:
        directory: Where the checkpoints are kept. That of the best epoch is in ``best`` below it.
        every_epochs: Save after every so many epochs.
        every_steps: Save after every so many batches.
        every_seconds: Save at the first batch after so many seconds.
        on_sigterm: When the process is told to end by SIGTERM, save after the batch that is being trained and stop training.
            The previous handler is back when ``fit()`` returns. Only works where ``fit()`` runs in the main thread.
        monitor: Name of a metric in an epoch's logs; the epoch in which it was best is saved and kept too.
        mode: ``"min"``, ``"max"``, or ``"auto"``, which asks the metric and then its name.
        keep_best: How many of the best epochs to keep.
        max_to_keep: How many other checkpoints to keep, the newest; None keeps all.
        keep_checkpoint_every_n_hours: Of those that would be deleted, preserve one for every so many hours.
        learning_rate: What to do where the program has set another learning rate than when the run began: ``"program"`` takes
            the program's, ``"saved"`` goes on with the saved one, and None raises a `MismatchError` in ``fit()``.
        continue_ended: Whether to go on with a run that another callback had ended.
        objects: Other trackable objects to be saved with the run, by name.
        options: How to save and restore; ``CheckpointOptions(enable_async=True)`` saves while training goes on.

    Raises:
        ValueError: An interval is not positive, ``mode`` or ``learning_rate`` is unknown, or a name in ``objects`` is in use.

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
