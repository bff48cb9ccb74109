"""Saves a model alone, as a checkpoint whose root is the model and which has no counter.

The files are those of Keras 2's ``model.save_weights(prefix)``. They also hold the optimizer of a compiled model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from milepost.checkpoint.checkpoint import Checkpoint
from milepost.checkpoint.tracing import as_written, refuse_if_traced
from milepost.engine.layouts.steps import Step
from milepost.engine.options import CheckpointOptions, resolved, takes_options
from milepost.engine.translation import Names, Rename
from milepost.errors import UnsupportedError
from milepost.graph.contract.operation import Operation
from milepost.restoring.status import LoadStatus
from milepost.saving.run_save import ListedSave, record_latest
from milepost.series.state_file import PathLike, check_recordable, state_of
from milepost.storage.paths import check_order, plain_path

_OTHER_FORMATS: Final = (".h5", ".hdf5", ".keras")


@as_written
@takes_options("save")
def save_weights(model: Any, path: PathLike, options: CheckpointOptions | None = None) -> str:
    """Saves everything that can be reached from a model, with the model as the root.

    Args:
        model: Any trackable object.
        path: The path of the files, without extension. An existing checkpoint is replaced atomically.
        options: How to save.

    Returns:
        ``path`` as a string. The checkpoint becomes the latest of its directory.

    Raises:
        UnsupportedError: The path has the extension of another format.
        CoordinationError: One of several processes failed, did not answer, or holds another model. No process has saved
            anything.
        UntrackableError: The model or something in it cannot be saved as it is held.
        StorageError: The files cannot be written. Existing files are unchanged.
        AfterCommitError: The checkpoint is saved and can be restored, but a later step failed.

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
    check_order(path, model, "milepost.save_weights(model, path)")
    options = resolved(options)
    refuse_if_traced("save_weights()")
    prefix = _checked(path)
    check_recordable(prefix)
    save = ListedSave(prefix, options, record_latest)
    with save.together():
        if save.leads:
            state_of(save.storage, os.path.dirname(prefix))  # raises an error if the state file is malformed
        with save.begin(lambda: Operation(model)):
            save.read(Operation(model))
            save.run()
    return prefix


@takes_options("restore")
def load_weights(
    model: Any,
    path: PathLike,
    options: CheckpointOptions | None = None,
    *,
    rename: Rename = (),
    ignore: Names = (),
    only: Names | None = None,
    cast: bool | Names = False,
    skip_mismatch: bool = False,
    convert: Sequence[Step] = (),
) -> LoadStatus:
    """Restores a model from a checkpoint of `save_weights` or Keras 2, or from any checkpoint whose root is such a model.

    Restoration is deferred for layers that are not built yet and for the state of optimizers that have not made a step.
    A warning is issued if the checkpoint has the model below its root, as checkpoints of training loops have. Call
    ``expect_partial()`` on the status if the program does not need all saved values.

    Args:
        model: Any trackable object.
        path: A path that `save_weights` returned, or any path that `milepost.Checkpoint.restore` accepts.
        options: How to restore.
        rename: As for `milepost.Checkpoint.restore`.
        ignore: As for `milepost.Checkpoint.restore`.
        only: As for `milepost.Checkpoint.restore`.
        cast: As for `milepost.Checkpoint.restore`.
        skip_mismatch: As for `milepost.Checkpoint.restore`.
        convert: As for `milepost.Checkpoint.restore`.

    Returns:
        A status with assertions and a full report.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged. Nothing was changed.
        MismatchError: A saved value has a different shape or dtype than the live object. Nothing was changed.

    Example:
        >>> import milepost, tempfile
        >>> path = save_weights(milepost.Checkpoint(bias=milepost.Variable([1.0, 2.0])), tempfile.mkdtemp() + "/net")
        >>> net = milepost.Checkpoint(bias=milepost.Variable([0.0, 0.0]))
        >>> status = load_weights(net, path).assert_consumed()
        >>> net.bias.numpy()
        array([1., 2.], dtype=float32)
    """
    check_order(path, model, "milepost.load_weights(model, path)")
    return Checkpoint(model).read(
        plain_path(path),  # which refuses None; read(None) restores nothing
        options,
        rename=rename,
        ignore=ignore,
        only=only,
        cast=cast,
        skip_mismatch=skip_mismatch,
        convert=convert,
    )


def _checked(path: PathLike) -> str:
    prefix = plain_path(path)
    if prefix.endswith(_OTHER_FORMATS):
        raise UnsupportedError(
            "weights are saved in TensorFlow's format, which has no such file name extension",
            file=prefix,
            expected="a path without .h5, .hdf5 or .keras",
            found=os.path.splitext(prefix)[1],
            remedy="remove the extension, or use the model's own save_weights() for that format",
        )
    return prefix
