"""Saves a model alone, as a checkpoint whose root is the model and which has no counter.

The files are those of Keras 2's ``model.save_weights(prefix)``. They also hold the optimizer of a compiled model.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any, Final

from milepost.checkpoint.tracing import RESTORE_OUTSIDE, as_written, refuse_if_traced
from milepost.checkpoint.views import TrackableView
from milepost.engine.options import CheckpointOptions, resolved, takes_options
from milepost.engine.translation import Names, Rename, Translation
from milepost.errors import UnrestoredWarning, UnsupportedError, warn
from milepost.graph.contract.operation import Operation
from milepost.restoring.load import load_into
from milepost.restoring.status import CheckpointLoadStatus, LoadStatus
from milepost.saving.run_save import ListedSave, record_latest
from milepost.series.state_file import check_recordable, get_checkpoint_state
from milepost.storage.paths import check_order, plain_path

PathLike = str | os.PathLike[str]
_OTHER_FORMATS: Final = (".h5", ".hdf5", ".keras")


@as_written
@takes_options("save")
def save_weights(model: Any, filepath: PathLike, options: CheckpointOptions | None = None) -> str:
    """Saves everything that can be reached from a model, with the model as the root.

    Args:
        model: Any trackable object.
        filepath: The path of the files, without extension. An existing checkpoint is replaced atomically.
        options: How to save.

    Returns:
        ``filepath`` as a string. The checkpoint becomes the latest of its directory.

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
    check_order(filepath, model, "milepost.save_weights(model, path)")
    options = resolved(options)
    refuse_if_traced("save_weights()")
    path = _checked(filepath)
    check_recordable(path)
    save = ListedSave(path, options, record_latest)
    with save.together():
        if save.leads:
            get_checkpoint_state(
                os.path.dirname(path), storage=options.storage
            )  # raises an error if the state file is malformed
        with save.begin(lambda: Operation(model)):
            save.read(Operation(model))
            save.run()
    return path


@as_written
@takes_options("restore")
def load_weights(
    model: Any,
    filepath: PathLike,
    options: CheckpointOptions | None = None,
    *,
    rename: Rename = (),
    ignore: Names = (),
    only: Names | None = None,
    cast: bool | Names = False,
    skip_mismatch: bool = False,
) -> LoadStatus:
    """Restores a model from a checkpoint of `save_weights` or Keras 2, or from any checkpoint whose root is such a model.

    Restoration is deferred for layers that are not built yet and for the state of optimizers that have not made a step.
    A warning is issued if the checkpoint has the model below its root, as checkpoints of training loops have. Call
    ``expect_partial()`` on the status if the program does not need all saved values.

    Args:
        model: Any trackable object.
        filepath: A path that `save_weights` returned, or any path that `milepost.Checkpoint.restore` accepts.
        options: How to restore.
        rename: As for `milepost.Checkpoint.restore`.
        ignore: As for `milepost.Checkpoint.restore`.
        only: As for `milepost.Checkpoint.restore`.
        cast: As for `milepost.Checkpoint.restore`.
        skip_mismatch: As for `milepost.Checkpoint.restore`.

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
    check_order(filepath, model, "milepost.load_weights(model, path)")
    refuse_if_traced("a restore", RESTORE_OUTSIDE)
    settings = resolved(options)
    path = plain_path(filepath)
    status = load_into(path, lambda: Operation(model), settings, Translation(rename, ignore, only, cast, skip_mismatch))
    if isinstance(status, CheckpointLoadStatus) and status.belongs_to_series and status.matched() <= 1:
        status.hint = _hint(model, status.saved_names())
        if status.hint:
            warn(f"{filepath}: no part of the model was found in this checkpoint: {status.hint}", UnrestoredWarning)
    return status


def _hint(model: Any, saved: Mapping[str, Collection[str]]) -> str:
    """The remedy if a checkpoint has the model below its root, as checkpoints of training loops have."""
    names = TrackableView.children(model).keys()
    shared = {name: len(names & set(below)) for name, below in saved.items() if name not in names}
    name = max(shared, key=shared.__getitem__, default="")
    if not name or not shared[name]:
        name = "model" if "model" in shared else ""
    return f"its weights are saved under {name!r}: call milepost.Checkpoint({name}=...).restore(path)" if name else ""


def _checked(filepath: PathLike) -> str:
    path = plain_path(filepath)
    if path.endswith(_OTHER_FORMATS):
        raise UnsupportedError(
            "weights are saved in TensorFlow's format, which has no such file name extension",
            file=path,
            expected="a path without .h5, .hdf5 or .keras",
            found=os.path.splitext(path)[1],
            remedy="remove the extension, or use the model's own save_weights() for that format",
        )
    return path
