"""Every private name of Keras 3 that milepost imports, with its purpose. Tested with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import keras

# What objects are: the classes that their adapters handle.
from keras.src.backend import Variable as Variable

# Where Keras keeps its global seed generator, if it was used.
from keras.src.backend.common.global_state import get_global_attribute as get_global_attribute
from keras.src.layers import Discretization as Discretization
from keras.src.layers import InputLayer as InputLayer
from keras.src.layers import Layer as Layer
from keras.src.layers import Normalization as Normalization
from keras.src.layers.preprocessing.feature_space import FeatureSpace as FeatureSpace
from keras.src.layers.preprocessing.index_lookup import IndexLookup as IndexLookup
from keras.src.models.functional import Functional as Functional
from keras.src.models.sequential import Sequential as Sequential
from keras.src.optimizers.base_optimizer import BaseOptimizer as BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer as LossScaleOptimizer
from keras.src.optimizers.schedules.learning_rate_schedule import LearningRateSchedule as LearningRateSchedule
from keras.src.random.seed_generator import SeedGenerator as SeedGenerator

# The generator of the seeds of layers that were given none, so that a resumed run of fit() draws the same numbers.
from keras.src.random.seed_generator import global_seed_generator as global_seed_generator

# What Keras saves of an object in files of its own, and under which names.
from keras.src.saving import saving_lib as _saving_lib
from keras.src.saving.keras_saveable import KerasSaveable as KerasSaveable

# The classes through which fit() reads data, for data that can be resumed.
from keras.src.trainers.data_adapters import data_adapter_utils as data_adapter_utils
from keras.src.trainers.data_adapters.data_adapter import DataAdapter as DataAdapter

# The lists and dicts into which Keras turns those that are assigned, and the registry of nested structures.
from keras.src.tree import register_tree_node_class as register_tree_node_class
from keras.src.utils import tracking as _tracking
from keras.src.utils.naming import to_snake_case as to_snake_case
from keras.src.utils.torch_utils import TorchModuleWrapper as TorchModuleWrapper  # layers that hold modules

walk_saveable: Any = _saving_lib._walk_saveable
TrackedList: Any = _tracking.TrackedList
TrackedDict: Any = _tracking.TrackedDict
TrackedOrderedDict: Any = getattr(_tracking, "TrackedOrderedDict", _tracking.TrackedDict)  # not in every Keras 3

if keras.backend.backend() == "torch":
    # The device for new tensors, when a value is restored before its variable has one.
    from keras.src.backend.torch.core import DEFAULT_DEVICE as DEFAULT_DEVICE

    # Batches for fit().
    from keras.src.backend.torch.core import convert_to_tensor as convert_to_tensor
    from keras.src.backend.torch.core import device_scope as device_scope
    from keras.src.backend.torch.core import get_device as get_device

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "keras.Variable": {
        "_value": "the tensor, without tracing",
        "_dtype": "element type, without autocasting",
        "_shape": "shape",
        "_initializer": "what a variable without a value is to be made with",
        "_direct_assign": "puts a tensor in place, without conversion",
    },
    "keras.optimizers.Optimizer": {
        "_variables": "all its variables",
        "_trainable_variables": "the variables that it trains",
        "_iterations": "the counter of steps",
        "_learning_rate": "the rate, as the variable or schedule that it is",
    },
    "keras.layers.StringLookup": {
        "_token_start_index": "where the vocabulary begins",
    },
    "keras.layers.TextVectorization": {
        "_lookup_layer": "the layer that holds its vocabulary",
    },
    "keras.utils.FeatureSpace": {
        "_is_adapted": "whether it may be used",
    },
    "keras.Model": {
        "_initial_epoch": "the epoch that BackupAndRestore makes fit() begin with",
    },
    "keras.callbacks.SwapEMAWeights": {
        "_ema_weights_in_model": "whether the averages are in the model",
        "_finalize_ema_values": "what it does at the end of the last epoch",
    },
    "keras.layers.Layer": {
        "_layers": "the layers that an object holds",
        "_trainable_variables": "the variables that it could train, whether or not it is to",
    },
    "keras.metrics.Metric": {
        "_direction": "whether more is better",
    },
    "exception of a layer": {
        "_keras_call_info_injected": "a mark on exceptions that Keras would replace",
    },
    "trainer with JAX": {
        "_jax_state": "the state after the last step, which the trainer gives to the variables when an epoch ends",
        "_jax_state_synced": "whether a trainer's state is in its variables",
        "_get_jax_state": "the values of the variables as such a state",
    },
}
"""Private attributes of objects, by class and name, each with its purpose."""
