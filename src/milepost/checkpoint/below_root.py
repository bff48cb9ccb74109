"""A restore into a root of which a checkpoint has the values below its own root, as checkpoints of training loops have those of a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from milepost.checkpoint.views import TrackableView
from milepost.errors import UnrestoredWarning, warn
from milepost.restoring.status import CheckpointLoadStatus, LoadStatus


def warn_if_below(root: Any, status: LoadStatus, path: str) -> None:
    """Warns if a restore has matched nothing below the root, and says under which name of the checkpoint its values seem to be."""
    if isinstance(status, CheckpointLoadStatus) and status.belongs_to_series and status.matched() <= 1:
        status.hint = _hint(root, status.saved_names())
        if status.hint:
            warn(f"{path}: no part of the root was found in this checkpoint: {status.hint}", UnrestoredWarning)


def _hint(model: Any, saved: Mapping[str, Collection[str]]) -> str:
    """The remedy if a checkpoint has the model below its root, as checkpoints of training loops have."""
    names = TrackableView.children(model).keys()
    shared = {name: len(names & set(below)) for name, below in saved.items() if name not in names}
    name = max(shared, key=shared.__getitem__, default="")
    if not name or not shared[name]:
        name = "model" if "model" in shared else ""
    return f"its weights are saved under {name!r}: call milepost.Checkpoint({name}=...).restore(path)" if name else ""
