"""Accelerate: everything that an ``Accelerator`` has prepared as one checkpoint, and the position in its data.

::

    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    checkpoint = milepost.accelerate.checkpoint(accelerator, epoch=milepost.Variable(0))
    manager = milepost.CheckpointManager(checkpoint, "./run", max_to_keep=3, every_steps=500, on_sigterm=True)
    manager.restore_or_initialize()
"""

from __future__ import annotations

from typing import Any as _Any

from milepost.adapters.accelerate.private import prepared as _prepared
from milepost.adapters.random_state import RandomState as _RandomState
from milepost.checkpoint.checkpoint import Checkpoint as _Checkpoint
from milepost.errors import UnsupportedError as _UnsupportedError
from milepost.graph.frameworks import require as _require
from milepost.trainers.positions import DataPosition

__all__ = ["DataPosition", "checkpoint"]


def checkpoint(accelerator: _Any, **objects: _Any) -> _Checkpoint:
    """Makes a checkpoint of everything that ``accelerator.save_state()`` would save.

    These are the models, optimizers, schedulers and loaders that were prepared, the objects that were registered for
    checkpointing, the gradient scaler, and the random state. Call it after all of them were made, and before a loader is read.

    Prepared objects may also be passed to `milepost.Checkpoint` by names of your own. That checkpoint can be restored without
    Accelerate.

    Args:
        accelerator: The ``accelerate.Accelerator``.
        **objects: More to save, such as the number of the epoch.

    Returns:
        A `milepost.Checkpoint` with the lists ``models``, ``optimizers``, ``schedulers``, ``loaders`` and ``registered``, with
        ``scaler`` if there is one, with ``random``, and with the objects.

    Raises:
        UnsupportedError: Nothing was prepared yet, or a name in ``objects`` is taken.
        AdapterError: This version of Accelerate is too old.
    """
    _require("accelerate")
    parts: dict[str, _Any] = _prepared(accelerator)
    if not any(parts.values()):
        raise _UnsupportedError(
            "this Accelerator has prepared nothing yet",
            expected="an earlier call of accelerator.prepare() with the model, the optimizer and the loader",
            found="none",
        )
    parts["loaders"] = [DataPosition(each) for each in parts["loaders"]]
    scaler = getattr(accelerator, "scaler", None)
    if scaler is not None:
        parts["scaler"] = scaler
    parts["random"] = _RandomState()
    taken = sorted(set(objects) & set(parts))
    if taken:
        raise _UnsupportedError("these names are taken", expected="other names", found=", ".join(taken))
    return _Checkpoint(**parts, **objects)
