"""One framework a file or folder. Only these modules import a framework, and only when the user has."""

from milepost.adapters import generators as generators  # of Python and NumPy
from milepost.adapters import iterators as iterators  # of no library in particular
from milepost.adapters import numpy as numpy  # always there: milepost depends on it
from milepost.adapters import random_state as random_state
from milepost.graph.frameworks import register_framework

# Keras comes after PyTorch, and so is asked before: its layers may be modules of PyTorch.
register_framework("torch", "milepost.adapters.torch", tried="2.13")
register_framework("jax", "milepost.adapters.jax", tried="0.10")
register_framework("flax.nnx", "milepost.adapters.flax", tried="0.12")
register_framework("tensorflow", "milepost.adapters.tensorflow", tried="2.15 and 2.21")
register_framework("keras", "milepost.adapters.keras", tried="3.15")
