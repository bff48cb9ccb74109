"""TensorFlow's global random state: the seed of ``tf.random.set_seed`` with the sequence that follows, and the global generator.

If a seed is set, each operation that runs eagerly gets a seed from a random generator of Python. The state of that generator is
saved. Operations with a seed of their own, and operations inside a ``tf.function``, have counters that TensorFlow does not expose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from milepost.adapters.generators import python_state, set_python_state
from milepost.adapters.tensorflow.private import eager_context, stateful_random_ops


def global_state() -> dict[str, Any]:
    """The state as plain data; empty if no seed was set and the global generator was never used."""
    state: dict[str, Any] = {}
    context = eager_context.context()
    if context._seed is not None:
        state["seed"] = int(np.asarray(context._seed))
        state["operations"] = python_state(context._rng)
    generator = stateful_random_ops.global_generator
    if generator is not None:
        with tf.init_scope():
            state["generator"] = {"algorithm": int(generator.algorithm), "state": generator.state.numpy()}
    return state


def set_global_state(state: Mapping[str, Any]) -> None:
    """Sets the state that `global_state` returned."""
    if "seed" in state:
        context = eager_context.context()
        context._set_global_seed(state["seed"])  # also resets the counters of all operations
        set_python_state(context._rng, state["operations"])
    if "generator" in state:
        saved = state["generator"]
        generator = stateful_random_ops.global_generator
        with tf.init_scope():
            if generator is not None and int(generator.algorithm) == int(saved["algorithm"]):
                generator.reset(saved["state"])
            else:
                made = tf.random.Generator.from_state(saved["state"], int(saved["algorithm"]))
                tf.random.set_global_generator(made)
