"""Recipes of layers that hold another framework's code: of TensorFlow, JAX, Flax and PyTorch."""

from __future__ import annotations

import functools
import tempfile
from typing import Any

from tests.zoo.recipe import VECTOR, Recipe, keras, recipe

L: Any = keras.layers


@functools.cache
def _saved_model():
    """A directory, for as long as this process lives, with a SavedModel of one variable and one function."""
    import tensorflow as tf

    class Scaled(tf.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable([1.0] * 6)

        @tf.function(input_signature=[tf.TensorSpec((None, 6))])
        def serve(self, x):
            return x * self.scale

    directory = tempfile.TemporaryDirectory()
    tf.saved_model.save(Scaled(), directory.name)
    return directory


def _torch_module():
    import torch

    return L.TorchModuleWrapper(torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3)))


def _jax_layer():
    import jax

    def start(rng, inputs):
        return {"w": [jax.random.normal(rng, (6, 3))], "b": jax.numpy.zeros(3)}, {"calls": jax.numpy.zeros(())}

    def compute(params, state, inputs):
        return inputs @ params["w"][0] + params["b"], {"calls": state["calls"] + 1}

    return L.JaxLayer(compute, start, seed=4)


def _flax_layer():
    import flax.linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, training=False):
            x = nn.Dense(3)(x)
            x = nn.BatchNorm(use_running_average=not training)(x)
            return nn.Dropout(0.3, deterministic=not training)(x)

    return L.FlaxLayer(Net())


RECIPES: dict[str, list[Recipe]] = {
    "TFSMLayer": [recipe(lambda: L.TFSMLayer(_saved_model().name, call_endpoint="serve"), VECTOR)],
    "JaxLayer": [recipe(_jax_layer, VECTOR)],
    "FlaxLayer": [recipe(_flax_layer, VECTOR, requires="flax", trains=True)],
    "TorchModuleWrapper": [recipe(_torch_module, VECTOR, trains=True)],
}
