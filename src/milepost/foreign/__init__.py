"""Files of other libraries, read as checkpoints: those of PyTorch, safetensors, Flax, Orbax, Keras and NumPy.

A `ForeignFile` is an open file of one format: a tree of names, and tensors that are read on demand. `items` gives everything in the
tree a name and a key. `reader` gives the file the methods of an open checkpoint. `graph` makes the object graph that it lacks.
Formats of several modules have folders: `pytorch`, `jax` (Flax and Orbax), `keras`, and `hdf5`, which Keras uses.
"""

from milepost.foreign.graph import GraphBuilder, HeldObject
from milepost.foreign.items import called
from milepost.foreign.model_directories import files_of_model, is_index, is_part_of_model
from milepost.foreign.opening import (
    is_foreign_directory,
    is_item_of_orbax,
    is_one_of_directories,
    needs_orbax,
    newest_of_orbax,
    open_foreign,
    steps_of_orbax,
)
from milepost.foreign.reader import ForeignReader

__all__ = [
    "ForeignReader",
    "GraphBuilder",
    "HeldObject",
    "called",
    "files_of_model",
    "is_foreign_directory",
    "is_index",
    "is_item_of_orbax",
    "is_one_of_directories",
    "is_part_of_model",
    "needs_orbax",
    "newest_of_orbax",
    "open_foreign",
    "steps_of_orbax",
]
