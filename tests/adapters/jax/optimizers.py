"""Every public transformation of gradients that Optax has, found by looking, and how to make one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib

import milepost

NAMESPACES = {"optax": optax, "optax.contrib": optax.contrib}
NOT_OPTIMIZERS = {
    "optax.GradientTransformation": "pair of functions that all the others are",
    "optax.GradientTransformationExtraArgs": "pair of functions that all the others are",
    "optax.WrappedSchedule": "function of a step with a counter, for use inside others",
    "optax.contrib.split_real_and_imaginary": "only for complex parameters",
}
PARAMETERS = {"dense": {"kernel": jnp.sin(jnp.arange(12.0)).reshape(3, 4), "bias": jnp.cos(jnp.arange(4.0))}}


def _measure(updates: Any, *_: Any, **__: Any) -> Any:
    return optax.tree.norm(updates)


def _adam() -> Any:
    return optax.adam(0.1)


def _always(step: Any, *_: Any, **__: Any) -> Any:
    return step >= 0


def _half(step: Any) -> Any:
    return 1 / (step + 2)


def _matrices(updates: Any) -> Any:
    return jax.tree.map(lambda _: optax.contrib.MuonDimensionNumbers(), updates)


_LABELS = {"dense": {"kernel": "a", "bias": "b"}}
_MASK = {"dense": {"kernel": True, "bias": False}}

# How to make those that take more than a learning rate.
RECIPES: dict[str, Callable[[], Any]] = {
    "optax.MultiSteps": lambda: optax.MultiSteps(_adam(), 2),
    "optax.adafactor": lambda: optax.adafactor(0.1, min_dim_size_to_factor=2, momentum=0.9),
    "optax.adaptive_grad_clip": lambda: optax.adaptive_grad_clip(0.01),
    "optax.add_noise": lambda: optax.add_noise(0.1, 0.5, key=0),
    "optax.apply_if_finite": lambda: optax.apply_if_finite(_adam(), 3),
    "optax.chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), _adam()),
    "optax.clip": lambda: optax.clip(0.1),
    "optax.clip_by_block_rms": lambda: optax.clip_by_block_rms(0.1),
    "optax.clip_by_global_norm": lambda: optax.clip_by_global_norm(0.1),
    "optax.conditionally_mask": lambda: optax.conditionally_mask(_adam(), _always),
    "optax.conditionally_transform": lambda: optax.conditionally_transform(_adam(), _always),
    "optax.ema": lambda: optax.ema(0.9),
    "optax.flatten": lambda: optax.flatten(_adam()),
    "optax.freeze": lambda: optax.freeze(_MASK),
    "optax.inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(_half),
    "optax.inject_stateful_hyperparams": lambda: optax.inject_stateful_hyperparams(optax.adam)(0.1),
    "optax.lookahead": lambda: optax.lookahead(_adam(), 2, 0.5),
    "optax.masked": lambda: optax.masked(_adam(), _MASK),
    "optax.measure_with_ema": lambda: optax.measure_with_ema(lambda updates: updates, 0.9),
    "optax.multi_transform": lambda: optax.multi_transform({"a": _adam(), "b": optax.sgd(0.1)}, _LABELS),
    "optax.named_chain": lambda: optax.named_chain(("clip", optax.clip(1.0)), ("adam", _adam())),
    "optax.scale_by_backtracking_linesearch": lambda: optax.scale_by_backtracking_linesearch(3),
    "optax.scale_by_schedule": lambda: optax.scale_by_schedule(_half),
    "optax.scale_by_zoom_linesearch": lambda: optax.scale_by_zoom_linesearch(3),
    "optax.scale": lambda: optax.scale(0.5),
    "optax.scale_by_learning_rate": lambda: optax.scale_by_learning_rate(_half),
    "optax.selective_transform": lambda: optax.selective_transform(_adam(), freeze_mask=_MASK),
    "optax.sgd": lambda: optax.sgd(_half, momentum=0.9),
    "optax.snapshot": lambda: optax.snapshot("norm", _measure),
    "optax.stateless": lambda: optax.stateless(lambda updates, parameters: updates),
    "optax.stateless_with_tree_map": lambda: optax.stateless_with_tree_map(lambda update, parameter: update),
    "optax.trace": lambda: optax.trace(0.9),
    "optax.with_extra_args_support": lambda: optax.with_extra_args_support(_adam()),
    "optax.contrib.differentially_private_aggregate": lambda: optax.contrib.differentially_private_aggregate(1, 0.1, 0),
    "optax.contrib.dpsgd": lambda: optax.contrib.dpsgd(0.1, 1.0, 0.1, 0, momentum=0.9),
    "optax.contrib.galore": lambda: optax.contrib.galore(0.1, rank=2),
    "optax.contrib.mechanize": lambda: optax.contrib.mechanize(_adam()),
    "optax.contrib.sam": lambda: optax.contrib.sam(_adam(), optax.sgd(0.05), reset_state=False),
    "optax.contrib.scale_by_galore": lambda: optax.contrib.scale_by_galore(rank=2),
    "optax.contrib.scale_by_muon": lambda: optax.masked(
        optax.contrib.scale_by_muon(weight_dimension_numbers=_matrices), _MASK
    ),
    "optax.contrib.schedule_free": lambda: optax.contrib.schedule_free(optax.sgd(0.1), 0.1),
}
PER_EXAMPLE = {"optax.contrib.differentially_private_aggregate", "optax.contrib.dpsgd"}
"""They take a gradient for each example."""
WITHOUT_EXTRAS = {"optax.MultiSteps", "optax.contrib.sam"}
"""They refuse further arguments to an update, such as the loss."""
WITH_SLOW_PARAMETERS = {"optax.lookahead"}


def transformations() -> dict[str, Any]:
    """Everything public that makes a transformation, by its first name."""
    found: dict[str, Any] = {}
    for namespace, module in NAMESPACES.items():
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or not callable(value) or value in found.values():
                continue
            try:
                returned = str(inspect.signature(value).return_annotation)
            except (TypeError, ValueError):
                continue
            if "GradientTransformation" in returned or (inspect.isclass(value) and hasattr(value, "update")):
                found[f"{namespace}.{name}"] = value
    return found


def names() -> list[str]:
    """What is tried."""
    return [name for name in transformations() if name not in NOT_OPTIMIZERS]


def make(name: str) -> Any:
    """A transformation."""
    if name in RECIPES:
        return RECIPES[name]()
    function = transformations()[name]
    return function(0.1) if "learning_rate" in inspect.signature(function).parameters else function()


def _loss(parameters: Any) -> Any:
    return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(parameters))


def _step(name: str, optimizer: Any, parameters: Any, state: Any, number: int) -> tuple[Any, Any]:
    fast = parameters.fast if name in WITH_SLOW_PARAMETERS else parameters
    gradients = jax.tree.map(lambda leaf: jnp.sin(leaf + number), fast)
    if name in PER_EXAMPLE:
        gradients = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), gradients)
    extra: dict[str, Any] = {}
    if name not in WITHOUT_EXTRAS:
        optimizer = optax.with_extra_args_support(optimizer)
        extra = {"value": _loss(fast), "grad": gradients, "value_fn": _loss}
    if name == "optax.contrib.sophia":
        extra["obj_fn"] = _loss
    updates, state = optimizer.update(gradients, state, parameters, **extra)
    return optax.apply_updates(parameters, updates), state


def _fresh(name: str, scale: float) -> tuple[Any, Any, Any]:
    optimizer = make(name)
    parameters = jax.tree.map(lambda leaf: leaf * scale, PARAMETERS)
    if name in WITH_SLOW_PARAMETERS:
        parameters = optax.LookaheadParams.init_synced(parameters)
    return optimizer, parameters, optimizer.init(parameters)


def check(name: str, directory: Path) -> list[str]:
    """Trains, saves, restores into another one, and goes on with both.

    Returns:
        The names of the values that were saved of the optimizer's state.
    """
    optimizer, parameters, state = _fresh(name, 1.0)
    for number in range(2):
        parameters, state = _step(name, optimizer, parameters, state, number)
    path = milepost.Checkpoint(params=parameters, opt_state=state).write(directory / "ckpt")
    fresh, other_parameters, other_state = _fresh(name, 0.5)
    checkpoint: Any = milepost.Checkpoint(params=other_parameters, opt_state=other_state)
    status = checkpoint.read(path)
    status.assert_consumed().assert_existing_objects_matched()
    restored = (checkpoint.params, checkpoint.opt_state)
    assert_same((parameters, state), restored)
    assert_same(_step(name, optimizer, parameters, state, 2), _step(name, fresh, *restored, 2))
    start, end = "opt_state/", "/.ATTRIBUTES"
    return [key[len(start) : key.index(end)] for key, _ in milepost.list_variables(path) if key.startswith(start)]


def assert_same(one: Any, other: Any) -> None:
    """Whether two trees are the same, bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array) and jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def summary(keys: list[str]) -> Mapping[str, int]:
    """How many values there are under each name, without those of the parameters' own."""
    found: dict[str, int] = {}
    for key in keys:
        parts = [part for part in key.split("/") if part not in ("dense", "kernel", "bias")]
        found["/".join(parts)] = found.get("/".join(parts), 0) + 1
    return found
