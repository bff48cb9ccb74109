"""Small NNX models for the tests, whose parts have as few shapes as possible: each new one is compiled anew."""

import jax.numpy as jnp
import optax
from flax import nnx

import milepost

INPUTS = jnp.linspace(-1.0, 1.0, 12).reshape(4, 3)
TARGETS = jnp.flip(INPUTS)


class Net(nnx.Module):
    """Two layers, with a normalisation and dropout between them."""

    def __init__(self, rngs):
        self.l1 = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.l2 = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x):
        return self.l2(self.dropout(self.norm(self.l1(x))))


class Stack(nnx.Module):
    """Layers in a list."""

    def __init__(self, count, rngs):
        self.layers = nnx.List([nnx.Linear(3, 3, rngs=rngs) for _ in range(count)])


@nnx.jit
def train_step(net, optimizer):
    def loss_of(net):
        return jnp.mean((net(INPUTS) - TARGETS) ** 2)

    loss, gradients = nnx.value_and_grad(loss_of)(net)
    optimizer.update(net, gradients)
    return loss


def trainer(seed, transformation=None):
    """A network and its optimizer, in a checkpoint."""
    net = Net(nnx.Rngs(seed))
    optimizer = nnx.Optimizer(net, transformation or optax.adamw(0.1), wrt=nnx.Param)
    return milepost.Checkpoint(net=net, optimizer=optimizer)


def keys(prefix):
    """The keys of a checkpoint, without what all of them end with."""
    found = [key for key, _ in milepost.list_variables(prefix) if not key.endswith("impl")]
    return [key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key in found if not key.startswith("_")]
