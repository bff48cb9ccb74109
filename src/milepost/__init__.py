"""Training checkpoints for every framework's objects, in TensorFlow's own files, without TensorFlow.

Names are those of ``tf.train``, so that ``import milepost`` can stand where ``tf.train`` stood::

    checkpoint = milepost.Checkpoint(step=milepost.Variable(0), net=net, optimizer=optimizer)
    manager = milepost.CheckpointManager(checkpoint, "./checkpoints", max_to_keep=3)
    manager.restore_or_initialize()
    ...
    manager.save()

Names are imported when they are first used, so that ``import milepost`` takes milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from milepost import adapters as adapters
    from milepost import errors as errors
    from milepost import retention as retention
    from milepost import storage as storage
    from milepost.adapters.random_state import RandomState
    from milepost.checkpoint import (
        Checkpoint,
        CheckpointReader,
        CheckpointView,
        TrackableView,
        list_variables,
        load,
        load_checkpoint,
        load_variable,
        load_weights,
        save,
        save_weights,
        to_state_dict,
    )
    from milepost.conversion import Conversion, convert
    from milepost.coordination import Coordinator, FileCoordinator
    from milepost.engine.directory import (
        checkpoint_exists,
        checkpoints_iterator,
        get_checkpoint_mtimes,
        latest_checkpoint,
    )
    from milepost.engine.options import CheckpointOptions
    from milepost.engine.plan import PlannedWrite
    from milepost.engine.progress import Progress
    from milepost.engine.removal import remove_checkpoint
    from milepost.engine.report import Entry, Outcome, Report
    from milepost.engine.sharding import MaxShardSizePolicy, ShardByTaskPolicy, ShardingPolicy
    from milepost.engine.state_file import CheckpointState, get_checkpoint_state, update_checkpoint_state
    from milepost.engine.status import CheckpointLoadStatus, InitializationOnlyStatus, LoadStatus, NameBasedStatus
    from milepost.errors import (
        AdapterError,
        AfterCommitError,
        ArgumentError,
        CheckpointExistsError,
        CheckpointNotFoundError,
        CoordinationError,
        CorruptCheckpointError,
        KeyNotFoundError,
        MilepostError,
        MilepostWarning,
        MismatchError,
        RefusedError,
        SkippedCheckpointWarning,
        StateFileError,
        StorageError,
        UnmatchedError,
        UnrestoredWarning,
        UnsupportedError,
        UntrackableError,
        UntrackedWarning,
    )
    from milepost.graph import Module, NoDependency, PythonState, SlotOwner, TensorState, Variable
    from milepost.manager import CheckpointManager
    from milepost.tensor import DType

__version__ = "0.1.0"

__all__ = [
    "AdapterError",
    "AfterCommitError",
    "ArgumentError",
    "Checkpoint",
    "CheckpointExistsError",
    "CheckpointLoadStatus",
    "CheckpointManager",
    "CheckpointNotFoundError",
    "CheckpointOptions",
    "CheckpointReader",
    "CheckpointState",
    "CheckpointView",
    "Conversion",
    "CoordinationError",
    "Coordinator",
    "CorruptCheckpointError",
    "DType",
    "Entry",
    "FileCoordinator",
    "InitializationOnlyStatus",
    "KeyNotFoundError",
    "LoadStatus",
    "MaxShardSizePolicy",
    "MilepostError",
    "MilepostWarning",
    "MismatchError",
    "Module",
    "NameBasedStatus",
    "NoDependency",
    "Outcome",
    "PlannedWrite",
    "Progress",
    "PythonState",
    "RandomState",
    "RefusedError",
    "Report",
    "ShardByTaskPolicy",
    "ShardingPolicy",
    "SkippedCheckpointWarning",
    "SlotOwner",
    "StateFileError",
    "StorageError",
    "TensorState",
    "TrackableView",
    "UnmatchedError",
    "UnrestoredWarning",
    "UnsupportedError",
    "UntrackableError",
    "UntrackedWarning",
    "Variable",
    "checkpoint_exists",
    "checkpoints_iterator",
    "convert",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load",
    "load_checkpoint",
    "load_variable",
    "load_weights",
    "remove_checkpoint",
    "save",
    "save_weights",
    "to_state_dict",
    "update_checkpoint_state",
]

_MODULES: Final = {
    "milepost.adapters.random_state": ["RandomState"],
    "milepost.checkpoint": [
        "Checkpoint",
        "CheckpointReader",
        "CheckpointView",
        "TrackableView",
        "list_variables",
        "load",
        "load_checkpoint",
        "load_variable",
        "load_weights",
        "save",
        "save_weights",
        "to_state_dict",
    ],
    "milepost.conversion": ["Conversion", "convert"],
    "milepost.coordination": ["Coordinator", "FileCoordinator"],
    "milepost.engine.directory": [
        "checkpoint_exists",
        "checkpoints_iterator",
        "get_checkpoint_mtimes",
        "latest_checkpoint",
    ],
    "milepost.engine.options": ["CheckpointOptions"],
    "milepost.engine.plan": ["PlannedWrite"],
    "milepost.engine.progress": ["Progress"],
    "milepost.engine.removal": ["remove_checkpoint"],
    "milepost.engine.report": ["Entry", "Outcome", "Report"],
    "milepost.engine.sharding": ["MaxShardSizePolicy", "ShardByTaskPolicy", "ShardingPolicy"],
    "milepost.engine.state_file": ["CheckpointState", "get_checkpoint_state", "update_checkpoint_state"],
    "milepost.engine.status": ["CheckpointLoadStatus", "InitializationOnlyStatus", "LoadStatus", "NameBasedStatus"],
    "milepost.errors": [
        "AdapterError",
        "AfterCommitError",
        "ArgumentError",
        "CheckpointExistsError",
        "CheckpointNotFoundError",
        "CoordinationError",
        "CorruptCheckpointError",
        "KeyNotFoundError",
        "MilepostError",
        "MilepostWarning",
        "MismatchError",
        "RefusedError",
        "SkippedCheckpointWarning",
        "StateFileError",
        "StorageError",
        "UnmatchedError",
        "UnrestoredWarning",
        "UnsupportedError",
        "UntrackableError",
        "UntrackedWarning",
    ],
    "milepost.graph": ["Module", "NoDependency", "PythonState", "SlotOwner", "TensorState", "Variable"],
    "milepost.manager": ["CheckpointManager"],
    "milepost.tensor": ["DType"],
}
"""The modules of the public names."""
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}
_PACKAGES: Final = frozenset({"adapters", "errors", "retention", "storage"})
"""Public modules that need no import statement of their own."""


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES, *(name for name in globals() if name.startswith("__"))]
