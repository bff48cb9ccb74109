"""Milepost for programs that ``import tf_keras``: a callback that saves and resumes ``fit()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tf_keras as _keras

from milepost.callbacks.checkpoints import FitCheckpoints as _FitCheckpoints
from milepost.graph.frameworks import require as _require
from milepost.graph.frameworks import whole_import as _whole_import

if TYPE_CHECKING:
    _Base = _FitCheckpoints
else:
    _require("tensorflow")
    with _whole_import("tf_keras"):
        from milepost.callbacks.keras2 import keras2_checkpoints as _keras2_checkpoints

        _Base = _keras2_checkpoints(_keras)

__all__ = ["CheckpointCallback"]


class CheckpointCallback(_Base):
    """Saves a run of ``fit()``, and resumes it in another process exactly where it was interrupted.

    Arguments and behaviour are those of `milepost.keras.CheckpointCallback`, for models of ``tf_keras``.

    Example:
        >>> import tempfile, tf_keras, numpy as np
        >>> model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
        >>> model.compile(optimizer="adam", loss="mse")
        >>> checkpoints = CheckpointCallback(tempfile.mkdtemp(), every_steps=100)
        >>> data = checkpoints.resumable(np.ones((64, 2)), np.ones((64, 1)), batch_size=8)
        >>> history = model.fit(data, epochs=2, verbose=0, callbacks=[checkpoints])
        >>> history.epoch, len(checkpoints.manager.checkpoints)
        ([0, 1], 2)
    """
