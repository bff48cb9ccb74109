"""Training checkpoints for every framework's objects, in TensorFlow's own files, without TensorFlow.

Names are those of ``tf.train``, so that ``import milepost`` can stand where ``tf.train`` stood::

    checkpoint = milepost.Checkpoint(step=milepost.Variable(0), net=net, optimizer=optimizer)
    manager = milepost.CheckpointManager(checkpoint, "./checkpoints", max_to_keep=3)
    manager.restore_or_initialize()
    ...
    manager.save()
"""

from milepost import adapters as adapters  # registers those of the libraries that are always there
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
from milepost.coordination import Coordinator, FileCoordinator
from milepost.engine.directory import (
    checkpoint_exists,
    checkpoints_iterator,
    get_checkpoint_mtimes,
    latest_checkpoint,
)
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import PlannedWrite
from milepost.engine.removal import remove_checkpoint
from milepost.engine.report import Entry, Outcome, Report
from milepost.engine.sharding import MaxShardSizePolicy, ShardByTaskPolicy, ShardingPolicy
from milepost.engine.state_file import CheckpointState, get_checkpoint_state, update_checkpoint_state
from milepost.engine.status import CheckpointLoadStatus, InitializationOnlyStatus, LoadStatus, NameBasedStatus
from milepost.errors import (
    AdapterError,
    AfterCommitError,
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
    "Checkpoint",
    "CheckpointExistsError",
    "CheckpointLoadStatus",
    "CheckpointManager",
    "CheckpointNotFoundError",
    "CheckpointOptions",
    "CheckpointReader",
    "CheckpointState",
    "CheckpointView",
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
