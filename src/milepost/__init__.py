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
import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from milepost import adapters as adapters
    from milepost import coordination as coordination
    from milepost import errors as errors
    from milepost import layouts as layouts
    from milepost import retention as retention
    from milepost import storage as storage
    from milepost import tensorflow1 as tensorflow1
    from milepost.adapters.random_state import RandomState as RandomState
    from milepost.checkpoint.checkpoint import Checkpoint as Checkpoint
    from milepost.checkpoint.directories import checkpoints_iterator as checkpoints_iterator
    from milepost.checkpoint.directories import get_checkpoint_state as get_checkpoint_state
    from milepost.checkpoint.directories import latest_checkpoint as latest_checkpoint
    from milepost.checkpoint.load_tree import load as load
    from milepost.checkpoint.reader import CheckpointReader as CheckpointReader
    from milepost.checkpoint.reader import list_variables as list_variables
    from milepost.checkpoint.reader import load_checkpoint as load_checkpoint
    from milepost.checkpoint.reader import load_variable as load_variable
    from milepost.checkpoint.save_tree import save as save
    from milepost.checkpoint.views import CheckpointView as CheckpointView
    from milepost.checkpoint.views import TrackableView as TrackableView
    from milepost.checkpoint.weights import load_weights as load_weights
    from milepost.checkpoint.weights import save_weights as save_weights
    from milepost.conversion.conversion import convert as convert
    from milepost.conversion.digest import digest as digest
    from milepost.conversion.hugging_face import export_hf as export_hf
    from milepost.engine.options import CheckpointOptions as CheckpointOptions
    from milepost.engine.plan import PlannedWrite as PlannedWrite
    from milepost.engine.progress import Progress as Progress
    from milepost.engine.sharding import MaxShardSizePolicy as MaxShardSizePolicy
    from milepost.engine.sharding import ShardingPolicy as ShardingPolicy
    from milepost.errors import AdapterError as AdapterError
    from milepost.errors import AfterCommitError as AfterCommitError
    from milepost.errors import ArgumentError as ArgumentError
    from milepost.errors import CheckpointExistsError as CheckpointExistsError
    from milepost.errors import CheckpointNotFoundError as CheckpointNotFoundError
    from milepost.errors import CoordinationError as CoordinationError
    from milepost.errors import CorruptCheckpointError as CorruptCheckpointError
    from milepost.errors import InProgressError as InProgressError
    from milepost.errors import KeyNotFoundError as KeyNotFoundError
    from milepost.errors import MilepostError as MilepostError
    from milepost.errors import MilepostWarning as MilepostWarning
    from milepost.errors import MismatchError as MismatchError
    from milepost.errors import RefusedError as RefusedError
    from milepost.errors import SkippedCheckpointWarning as SkippedCheckpointWarning
    from milepost.errors import StateFileError as StateFileError
    from milepost.errors import StorageError as StorageError
    from milepost.errors import UnmatchedError as UnmatchedError
    from milepost.errors import UnrestoredWarning as UnrestoredWarning
    from milepost.errors import UnsupportedError as UnsupportedError
    from milepost.errors import UntrackableError as UntrackableError
    from milepost.errors import UntrackedWarning as UntrackedWarning
    from milepost.graph import Module as Module
    from milepost.graph import NoDependency as NoDependency
    from milepost.graph import PythonState as PythonState
    from milepost.graph import SlotOwner as SlotOwner
    from milepost.graph import TensorState as TensorState
    from milepost.graph import Variable as Variable
    from milepost.manager import CheckpointManager as CheckpointManager
    from milepost.manager.committed import CommittedSave as CommittedSave
    from milepost.manager.finite_policy import KeepLastFinite as KeepLastFinite
    from milepost.manager.tolerance import Tolerate as Tolerate
    from milepost.restoring.status import LoadStatus as LoadStatus
    from milepost.tools.drawing.graph import draw_graph as draw_graph

__version__ = "0.9.0"

_MODULES: Final = {
    "milepost.adapters.random_state": ["RandomState"],
    "milepost.checkpoint.checkpoint": ["Checkpoint"],
    "milepost.checkpoint.directories": ["checkpoints_iterator", "get_checkpoint_state", "latest_checkpoint"],
    "milepost.checkpoint.load_tree": ["load"],
    "milepost.checkpoint.reader": ["CheckpointReader", "list_variables", "load_checkpoint", "load_variable"],
    "milepost.checkpoint.save_tree": ["save"],
    "milepost.checkpoint.views": ["CheckpointView", "TrackableView"],
    "milepost.checkpoint.weights": ["load_weights", "save_weights"],
    "milepost.conversion.conversion": ["convert"],
    "milepost.conversion.hugging_face": ["export_hf"],
    "milepost.conversion.digest": ["digest"],
    "milepost.engine.options": ["CheckpointOptions"],
    "milepost.engine.plan": ["PlannedWrite"],
    "milepost.engine.progress": ["Progress"],
    "milepost.engine.sharding": ["MaxShardSizePolicy", "ShardingPolicy"],
    "milepost.restoring.status": ["LoadStatus"],
    "milepost.errors": [
        "AdapterError",
        "AfterCommitError",
        "ArgumentError",
        "CheckpointExistsError",
        "CheckpointNotFoundError",
        "CoordinationError",
        "CorruptCheckpointError",
        "InProgressError",
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
    "milepost.manager.committed": ["CommittedSave"],
    "milepost.manager.finite_policy": ["KeepLastFinite"],
    "milepost.manager.tolerance": ["Tolerate"],
    "milepost.tools.drawing.graph": ["draw_graph"],
}
"""The public names, by the module that has each. The imports above tell type checkers and editors the same."""
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}
_PACKAGES: Final = frozenset({"adapters", "coordination", "errors", "layouts", "retention", "storage", "tensorflow1"})
"""Public modules that need no import statement of their own."""
_IMPORTED: Final = frozenset(
    {
        *("accelerate", "ignite", "jax", "keras", "lightning", "tf_keras", "transformers"),
        "testing",
    }
)
"""Public modules that a program imports by their names."""
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name in _IMPORTED:
        message = f"module {__name__!r} has no attribute {name!r}; write: import {__name__}.{name}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    # here, because `import milepost` imports no other module
    from milepost.collector import collection_paused
    from milepost.errors import importing

    with importing(), collection_paused():  # an import makes many objects and no garbage
        if name in _PACKAGES:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _MODULE_OF:
            value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
            return value
        former = importlib.import_module("milepost.deprecations")
    return former.attribute(__name__, name)


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES, *(name for name in globals() if name.startswith("__"))]


if "MILEPOST_CHECK_RESUME" in os.environ:  # `milepost check-resume` or `assert_resumes` has started this process
    importlib.import_module("milepost.tools.resumes.recording").start(os.environ["MILEPOST_CHECK_RESUME"])
