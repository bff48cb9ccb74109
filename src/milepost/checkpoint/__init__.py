"""Saving and restoring whole object graphs, and looking into checkpoints."""

from milepost import adapters as adapters  # registers those of the libraries that are always there
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.checkpoint.load_tree import load, to_state_dict
from milepost.checkpoint.reader import CheckpointReader, list_variables, load_checkpoint, load_variable
from milepost.checkpoint.save_tree import save
from milepost.checkpoint.views import CheckpointView, TrackableView
from milepost.checkpoint.weights import load_weights, save_weights

__all__ = [
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
]
