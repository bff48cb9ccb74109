"""TensorFlow's random state as a whole: the seed of ``tf.random.set_seed`` and what follows from it, and the global generator.

With a seed, each operation that runs eagerly gets a seed of its own from a generator of Python's, so that generator is the
state. Operations that were given a seed, and those inside a ``tf.function``, keep counters that TensorFlow does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from milepost.adapters.generators import python_state, set_python_state
from milepost.adapters.tensorflow.private import eager_context, stateful_random_ops


def global_state() -> dict[str, Any]:
    """The state as plain data; empty where no seed was set and the global generator was never used."""
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
    """Puts back what `global_state` returned."""
    if "seed" in state:
        context = eager_context.context()
        context._set_global_seed(state["seed"])  # forgets the counters of all operations, too
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
