"""Adapters tell milepost how to save and restore objects. Each kind of objects has one, and programs and libraries can add their own.

To write one, derive a class from `Adapter`, whose docstring has the order of all calls, and pass an object of it to `register`. The
page ``docs/extending.md`` has a worked example, and `milepost.testing.adapter_suite` has tests. The names in ``__all__`` here are
public, and an adapter needs no others but the errors of `milepost`.

====================================  ==================================================================================
`Adapter`, `Value`, `VARIABLE_VALUE`  an adapter, and the values it returns; `ANY_SHAPE` for any dimensions
`register`, `unregister`              add an adapter, and remove it
`register_framework`                  adds the adapters of a framework as soon as the program has imported it
`adapter_of`                          returns the adapter of an object, for adapters whose objects hold others
`restore_child`, `restore_slot`,      restore deferred values; a hook calls them when an object has made a child
`restore_children`, `is_deferred`
`Omission`, `Accounted`               what a checkpoint would leave out
`DType`, `TensorSpec`, `TensorSlice`  element types, element types with shapes, boxes cut from a tensor
`SavedState`, `LoadedState`           what an object loads by code of its own, and what it has loaded
`PiecewiseArray`, `Piece`,            large values, saved from several pieces of memory
`PieceSource`, `OnDevice`
`ShardedArray`, `Shard`               values whose parts are held by several processes
====================================  ==================================================================================

milepost's own adapters are modules of this package, one file or folder for each framework. An adapter of a framework is imported
only after the program has imported the framework.
"""

from milepost.adapters import generators as generators  # of Python and NumPy
from milepost.adapters import iterators as iterators  # of no library in particular
from milepost.adapters import numpy as numpy  # always there: milepost depends on it
from milepost.adapters import random_state as random_state
from milepost.adapters.deferred_children import is_deferred, restore_child, restore_children, restore_slot
from milepost.adapters.private import pytree_types
from milepost.graph.adapter import ANY_SHAPE, Adapter, Value, adapter_of, register, unregister
from milepost.graph.contract.matching import LoadedState, SavedState
from milepost.graph.contract.operation import Operation
from milepost.graph.frameworks import register_framework
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.omissions import Accounted, Omission
from milepost.tensor import (
    DType,
    OnDevice,
    Piece,
    PieceSource,
    PiecewiseArray,
    Shard,
    ShardedArray,
    TensorSlice,
    TensorSpec,
)

__all__ = [
    "ANY_SHAPE",
    "VARIABLE_VALUE",
    "Accounted",
    "Adapter",
    "DType",
    "LoadedState",
    "Omission",
    "OnDevice",
    "Operation",
    "Piece",
    "PieceSource",
    "PiecewiseArray",
    "SavedState",
    "Shard",
    "ShardedArray",
    "TensorSlice",
    "TensorSpec",
    "Value",
    "adapter_of",
    "is_deferred",
    "register",
    "register_framework",
    "restore_child",
    "restore_children",
    "restore_slot",
    "unregister",
]

# The adapters that are registered last are asked first. Keras comes after PyTorch, because its layers may be modules of PyTorch.
register_framework("torch", "milepost.adapters.torch", tried="2.13", oldest="2.6")
register_framework(
    "jax",
    "milepost.adapters.jax",
    tried="0.10",
    oldest="0.6.2",
    packages=("jaxlib", "flax", "optax", "equinox"),
    registered=pytree_types,
)
register_framework("flax.nnx", "milepost.adapters.flax", tried="0.12", oldest="0.10.7")
register_framework("tensorflow", "milepost.adapters.tensorflow", tried="2.15 and 2.21", oldest="2.15")
register_framework("keras", "milepost.adapters.keras", tried="3.15", oldest="2.15 or 3.10")
register_framework("mpi4py", "milepost.adapters.mpi", tried="4.1")

# What only the modules for their users need.
register_framework("tf_keras", "", tried="2.21", oldest="2.15")
register_framework("lightning", "", tried="2.6", oldest="2.5.3")  # earlier ones begin a resumed epoch twice
register_framework("pytorch_lightning", "", tried="2.6", oldest="2.5.3")
register_framework("transformers", "", tried="5.24", oldest="4.50")
register_framework(
    "accelerate", "", tried="1.15", oldest="1.9"
)  # earlier ones have a batch None where an epoch has no batch left
register_framework("ignite", "", tried="0.5", oldest="0.5.2")
