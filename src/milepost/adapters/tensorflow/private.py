"""Every private name of TensorFlow that milepost imports, with its purpose. Tested with the versions in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

# The names that TensorFlow before 2.12 has for values that are not variables.
from tensorflow.python.checkpoint import saveable_compat as saveable_compat

# The classes of iterators; those of NumPy are not in every version.
from tensorflow.python.data.ops import dataset_ops as _dataset_ops
from tensorflow.python.data.ops import iterator_ops as _iterator_ops

# The seed of all operations, and the generator that gives each its own.
from tensorflow.python.eager import context as _context

# The global generator, if there is one.
from tensorflow.python.ops import stateful_random_ops as stateful_random_ops

# Whether an object has a saver of its own, which writes other files.
from tensorflow.python.saved_model import registration as registration

# The values that objects such as tables and iterators have for a saver.
from tensorflow.python.training.saving import saveable_object as saveable_object
from tensorflow.python.training.saving import saveable_object_util as saveable_object_util

IteratorBase: Any = _iterator_ops.IteratorBase
eager_context: Any = _context
NumpyIterator: Any = getattr(_dataset_ops, "NumpyIterator", IteratorBase)

# Whatever TensorFlow tracks, and how it does so.
Trackable: Any = tf.__internal__.tracking.Trackable
AutoTrackable: Any = tf.__internal__.tracking.AutoTrackable
DelegatingTrackableMixin: Any = tf.__internal__.tracking.DelegatingTrackableMixin
ListWrapper: Any = type(tf.__internal__.tracking.wrap([]))
DictWrapper: Any = type(tf.__internal__.tracking.wrap({}))
TupleWrapper: Any = type(tf.__internal__.tracking.wrap((tf.Module(),)))
ShardedVariable: Any = tf.__internal__.distribute.ShardedVariable


def server_of_workers() -> Any:
    """The cluster and the task of this process in it, if a strategy of several workers has connected them; otherwise None.

    `Context.get_server_def` tells of parameter servers only.
    """
    return getattr(_context.context(), "_collective_ops_server_def", None)


def iterator_resource(iterator: Any) -> Any:
    """The resource of an iterator over a dataset, for TensorFlow's operations."""
    return iterator._iterator_resource


ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "tf.Module": {
        "_trackable_children": "the named children of whatever is tracked",
        "_gather_saveables_for_checkpoint": "the values of objects of older classes",
        "_self_saveable_object_factories": "the functions that TensorFlow before 2.12 calls for the values of an object",
        "_self_unconditional_checkpoint_dependencies": "the list that names children",
        "_self_unconditional_dependency_names": "whether a name is in it",
    },
    "list of a tf.Module": {
        "_track_value": "a list, dict or tuple calls it for a new member",
    },
    "DelegatingTrackableMixin": {
        "_trackable": "the object that a delegating one stands for",
    },
    "tf.Variable": {
        "_graph_element": "the tensor of a graph's variable",
        "_in_graph_mode": "whether a variable is a graph's",
        "_save_slice_info": "which part of another a variable is",
        "_shared_name": "the name of a variable in eager mode",
    },
    "part of a ShardedVariable": {
        "_sharded_container": "marks parts of a sharded variable",
    },
    "variable of a tf.distribute.MirroredStrategy": {
        "_primary": "the first copy of a mirrored variable",
        "_get_cross_replica": "the value over all copies",
    },
    "variable of a parameter server": {
        "_v": "the variable inside one that aggregates",
    },
    "tf.Graph": {
        "_variable_creator_stack": "whether variables are being made in a scope that changes how they are made",
    },
    "eager context": {
        "_seed": "the seed of all operations",
        "_rng": "the generator of the operations' seeds",
        "_set_global_seed": "sets the seed, and forgets what operations have counted",
    },
    "tf.compat.v1.train.AdamOptimizer": {
        "_slots": "slot variables of TensorFlow 1's optimizers",
        "_zeros_slot": "makes such a slot variable",
        "_name": "the name of the optimizer, which those of its slot variables begin with",
        "_create_or_restore_slot_variable": "whether an optimizer has slot variables",
    },
    "tf.lookup.experimental.MutableHashTable": {
        "_serialize_to_tensors": "the values of objects that are not variables",
        "_restore_from_tensors": "restores such values",
    },
    "tf.data.Dataset": {
        "_inputs": "the datasets that a dataset is made of",
        "_reshuffle_each_iteration": "whether a shuffle has another order in each pass",
        "_seed": "the seed of a shuffle",
        "_seed2": "its other seed",
    },
    "iterator over a tf.data.Dataset": {
        "_iterator_resource": "the resource, in which another pass can begin",
    },
}
"""Private attributes of objects, by class and name, each with its purpose."""

KERAS_2_ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "Model": {
        "_flatten_layers": "all its layers",
        "_trainable_weights": "the variables of a layer that it could train, whether or not it is to",
        "_training_state": "what BackupAndRestore keeps, and the epoch that fit() begins with",
    },
    "optimizers.Adam": {
        "_learning_rate": "the rate, as the variable or schedule that it is",
        "_variables": "all its variables",
        "_create_or_restore_slot_variable": "whether it may have slot variables",
        "_index_dict": "the position of each variable in its lists, once it is built",
        "_var_key": "the key under which a variable has its position",
    },
    "optimizers.Nadam": {
        "_u_product_counter": "the steps that are in its product",
    },
    "optimizers.legacy.Adam": {
        "_hyper": "its settings, which are saved with it",
        "_weights": "the list of its counter and slot variables",
        "_create_or_restore_slot_variable": "whether it may have slot variables",
    },
    "layers.Dropout": {
        "_random_generator": "what it draws with",
    },
    "generator of a layer": {
        "_rng_type": "its kind",
        "_seed": "the seed that it draws with",
    },
    "layers.LSTM": {
        "_states": "the states of a recurrent layer",
    },
    "layers.StringLookup": {
        "_token_start_index": "where the words of a lookup layer begin",
    },
    "variable of a mixed policy": {
        "_variable": "the variable inside one that casts",
    },
    "exception of a layer": {
        "_keras_call_info_injected": "a mark on exceptions that Keras would replace",
    },
}
"""The same for Keras 2, which is `tf_keras`, or a part of TensorFlow before 2.16."""
