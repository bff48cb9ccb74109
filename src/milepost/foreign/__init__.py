"""Files of other libraries, read as if they were checkpoints: PyTorch's, safetensors, Orbax's.

A `Source` is an open file of one format: a tree of names, and tensors that are read when they are asked for. `items` gives
everything in it a name and a key, `reader` the methods of an open checkpoint, and `graph` the object graph that it lacks.
"""

from milepost.foreign.graph import GraphBuilder, HeldObject
from milepost.foreign.opening import is_foreign_directory, is_item_of_orbax, open_foreign
from milepost.foreign.reader import ForeignReader

__all__ = ["ForeignReader", "GraphBuilder", "HeldObject", "is_foreign_directory", "is_item_of_orbax", "open_foreign"]
