"""Every transformation of gradients of Optax and its contrib; the tests know how to make and use them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.libraries.specimen import Specimen
from tests.adapters.jax import optimizers


def names() -> Iterable[str]:
    """What is public, by its name."""
    return optimizers.names()


def make(name: str, seed: int) -> Specimen:
    """A transformation with its state, and parameters."""
    return Transformation(name, seed)


class Transformation(Specimen):
    """Parameters and the state of a transformation."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.optimizer, self.params, self.state = optimizers._fresh(name, 1 / seed)

    def tracked(self) -> dict[str, Any]:
        return {"params": self.params, "opt_state": self.state}

    def adopt(self, checkpoint: Any) -> None:
        self.params, self.state = checkpoint.params, checkpoint.opt_state

    def use(self, step: int) -> Any:
        self.params, self.state = optimizers._step(self.name, self.optimizer, self.params, self.state, step)
        return jax.tree.leaves(self.params)

    def account(self) -> Any:
        leaves, structure = jax.tree.flatten((self.params, self.state))
        return {"leaves": leaves, "structure": str(structure)}

    def save(self, path: Path) -> None:
        leaves = [_words(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves((self.params, self.state))]
        path.write_bytes(
            pickle.dumps([leaf if isinstance(leaf, (int, float)) else np.asarray(leaf) for leaf in leaves])
        )

    def load(self, path: Path) -> None:
        live, structure = jax.tree.flatten((self.params, self.state))
        saved = pickle.loads(path.read_bytes())
        leaves = [_like(old, new) for old, new in zip(live, saved, strict=True)]
        self.params, self.state = jax.tree.unflatten(structure, leaves)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _words(key: Any) -> Any:
    return jax.random.key_data(key)


def _like(live: Any, saved: Any) -> Any:
    if _is_key(live):
        return jax.random.wrap_key_data(saved, impl=jax.random.key_impl(live))
    return jax.numpy.asarray(saved) if isinstance(live, jax.Array) else saved
