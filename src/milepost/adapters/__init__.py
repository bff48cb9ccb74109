"""One framework a file or folder. Only these modules import a framework, and only when the user has."""

from milepost.adapters import numpy as numpy  # always there: milepost depends on it
from milepost.adapters import random_state as random_state
from milepost.adapters import stateful as stateful  # of no library in particular
from milepost.graph.adapter import register_framework

# Keras comes after PyTorch, and so is asked before: its layers may be modules of PyTorch.
register_framework("torch", "milepost.adapters.torch")
register_framework("jax", "milepost.adapters.jax")
register_framework("flax.nnx", "milepost.adapters.flax")
register_framework("tensorflow", "milepost.adapters.tensorflow")
register_framework("keras", "milepost.adapters.keras")
