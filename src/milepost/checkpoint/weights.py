"""Saving a model alone: a checkpoint whose root is the model itself, without a counter.

These are the files of Keras 2's ``model.save_weights(prefix)``. What a compiled model has an optimizer for is in them too.
"""

from __future__ import annotations

import os
from typing import Any, Final

from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.load import load_into, storage_of
from milepost.engine.options import CheckpointOptions
from milepost.engine.processes import claim_path
from milepost.engine.save import execute_save, plan_save
from milepost.engine.status import LoadStatus
from milepost.errors import UnsupportedError

PathLike = str | os.PathLike[str]
_OTHER_FORMATS: Final = (".h5", ".hdf5", ".keras")


def save_weights(model: Any, filepath: PathLike, options: CheckpointOptions | None = None) -> str:
    """Saves everything reachable from a model, with the model as the root.

    Args:
        model: Any trackable object.
        filepath: Path of the files, without ending. A checkpoint that is there already is replaced atomically.
        options: How to save.

    Returns:
        ``filepath`` as a string. It becomes the latest checkpoint of its directory.

    Raises:
        UnsupportedError: The path has the ending of another format, which Keras writes, or another process of
            `torch.distributed` or `jax.distributed` has saved there.
        UntrackableError: The model is not trackable, or something in it cannot be saved as it is held.
        StorageError: The files could not be written; what was there before still is.

    Example:
        >>> import milepost, tempfile
        >>> net = milepost.Module()
        >>> net.bias = milepost.Variable([1.0, 2.0])
        >>> path = milepost.save_weights(net, tempfile.mkdtemp() + "/easy_checkpoint")
        >>> net.bias.assign([0.0, 0.0])
        <milepost.Variable shape=(2,) dtype=float32, numpy=array([0., 0.], dtype=float32)>
        >>> status = milepost.load_weights(net, path)
        >>> net.bias.numpy()
        array([1., 2.], dtype=float32)
    """
    options = options or CheckpointOptions()
    path = _checked(filepath)
    claim_path(path, options)
    plan, arrays = plan_save(model, (), options)
    execute_save(plan, arrays, storage_of(options), path, options)
    Checkpoint._publish(path, options)
    return path


def load_weights(model: Any, filepath: PathLike, options: CheckpointOptions | None = None) -> LoadStatus:
    """Restores a model from what `save_weights` or Keras 2 saved, or from any checkpoint whose root is such a model.

    Layers that are not built yet get their values when they are, and optimizers their state in the first step. Call
    ``expect_partial()`` on the status if not all that was saved is wanted.

    Args:
        model: Any trackable object; what it does not have yet is restored when it comes.
        filepath: What `save_weights` returned.
        options: How to restore.

    Returns:
        A status with assertions and a full report.

    Raises:
        UnsupportedError: The path has the ending of another format, which Keras reads.
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: It is damaged; nothing was changed.
        MismatchError: A saved value has another shape or dtype than the live object; nothing was changed.
    """
    return load_into(_checked(filepath), lambda: (model, ()), options or CheckpointOptions())


def _checked(filepath: PathLike) -> str:
    path = os.fspath(filepath)
    if path.endswith(_OTHER_FORMATS):
        raise UnsupportedError(
            "weights are saved in TensorFlow's format, as several files that begin with this path",
            file=path,
            expected="a path without the ending of another format",
            found=os.path.splitext(path)[1],
            remedy="leave the ending out, or use the model's own save_weights() and load_weights() for that format",
        )
    return path
