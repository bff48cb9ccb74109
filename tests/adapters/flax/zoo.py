"""Every public class of `flax.nnx` that can have state, found by looking, and how to make and use one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx

import milepost

VECTOR = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
SEQUENCE = jnp.sin(jnp.arange(24.0)).reshape(2, 4, 3)
IMAGE = jnp.sin(jnp.arange(48.0)).reshape(1, 4, 4, 3)
TOKENS = jnp.array([[0, 2, 1], [1, 1, 0]])

NAMESPACES = {"nnx": nnx, "nnx.metrics": nnx.metrics, "nnx.bridge": nnx.bridge}
BASES = {
    "nnx.Module": "base class of modules",
    "nnx.Object": "base class",
    "nnx.Pytree": "base class",
    "nnx.RNNCellBase": "base class of cells",
    "nnx.bridge.Scope": "used inside `nnx.bridge.Module` only",
    "nnx.Metric": "base class of metrics",
}
"""Classes that nobody makes objects of."""


@dataclass(frozen=True)
class Recipe:
    """A way to make and use an object.

    Attributes:
        make: Makes one from random streams.
        use: Uses it, which may change it, and returns what it computes.
        variant: What distinguishes this recipe from others of the same class.
    """

    make: Callable[[nnx.Rngs], Any]
    use: Callable[[Any], Any]
    variant: str = ""


class Case(NamedTuple):
    """One recipe of one class."""

    name: str
    recipe: Recipe

    def __str__(self) -> str:
        return f"{self.name} ({self.recipe.variant})" if self.recipe.variant else self.name


def layer(name: str, *arguments: Any, on: Any = VECTOR, variant: str = "", **options: Any) -> Recipe:
    """A layer that is called with one input."""
    return Recipe(lambda rngs: getattr(nnx, name)(*arguments, **options, rngs=rngs), lambda obj: obj(on), variant)


def cell(name: str) -> Recipe:
    """A cell of a recurrent network, for one step."""

    def use(obj: Any) -> Any:
        return obj(obj.initialize_carry(VECTOR.shape, rngs=nnx.Rngs(0)), VECTOR)

    return Recipe(lambda rngs: getattr(nnx, name)(3, 3, rngs=rngs), use)


def linear(rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(3, 3, rngs=rngs)


def _attention(obj: Any) -> Any:
    return obj(SEQUENCE)


def _decoder(rngs: nnx.Rngs) -> Any:
    attention = nnx.MultiHeadAttention(1, 3, decode=True, rngs=rngs)
    attention.init_cache(SEQUENCE.shape)
    return attention


def _rng_values(stream: Any) -> Any:
    return jax.random.key_data(stream())


def _train(optimizer: Any, model: Any = None) -> Any:
    """One step; the model is the optimizer's own, or in a pair with it."""
    owner = model if model is not None else optimizer.model
    gradients = nnx.grad(lambda each: jnp.mean(each(VECTOR) ** 2))(owner)
    if model is None:
        optimizer.update(gradients)
    else:
        optimizer.update(model, gradients)
    return owner(VECTOR)


def _trainer(rngs: nnx.Rngs) -> Any:
    model = linear(rngs)
    return nnx.List([model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)])


def _averaged(rngs: nnx.Rngs) -> Any:
    model = linear(rngs)
    return nnx.List([model, nnx.EMA(model, decay=0.5)])


def _average(pair: Any) -> Any:
    model, average = pair
    average.update(model)
    return average.apply_to(model)(VECTOR)


class BridgeModule(nnx.bridge.Module):
    """A module in Linen's style."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.dense = linear(rngs)

    def __call__(self, x: Any) -> Any:
        return self.dense(x)


def _metric(**values: Any) -> Callable[[Any], Any]:
    def use(metric: Any) -> Any:
        metric.update(**values)
        return metric.compute()

    return use


_LOGITS = {"logits": jnp.eye(3), "labels": jnp.array([0, 1, 1])}

RECIPES: dict[str, list[Recipe]] = {
    "nnx.BatchNorm": [layer("BatchNorm", 3)],
    "nnx.Bidirectional": [
        Recipe(
            lambda rngs: nnx.Bidirectional(
                nnx.RNN(nnx.SimpleCell(3, 3, rngs=rngs), rngs=rngs),
                nnx.RNN(nnx.SimpleCell(3, 3, rngs=rngs), rngs=rngs),
                rngs=rngs,
            ),
            _attention,
        )
    ],
    "nnx.Conv": [layer("Conv", 3, 3, (3, 3), on=IMAGE)],
    "nnx.ConvTranspose": [layer("ConvTranspose", 3, 3, (3, 3), on=IMAGE)],
    "nnx.Dict": [Recipe(lambda rngs: nnx.Dict(layer=linear(rngs), rate=0.5), lambda obj: obj["layer"](VECTOR))],
    "nnx.Dropout": [layer("Dropout", 0.5)],
    "nnx.EMA": [Recipe(_averaged, _average)],
    "nnx.Einsum": [layer("Einsum", "ab,bc->ac", (3, 3), (3,))],
    "nnx.Embed": [layer("Embed", 3, 3, on=TOKENS)],
    "nnx.GRUCell": [cell("GRUCell")],
    "nnx.GroupNorm": [layer("GroupNorm", 3, num_groups=3)],
    "nnx.InstanceNorm": [layer("InstanceNorm", 3, on=IMAGE)],
    "nnx.LSTMCell": [cell("LSTMCell")],
    "nnx.LayerNorm": [layer("LayerNorm", 3)],
    "nnx.Linear": [layer("Linear", 3, 3), layer("Linear", 3, 3, use_bias=False, variant="without bias")],
    "nnx.LinearGeneral": [layer("LinearGeneral", 3, (3, 2))],
    "nnx.List": [Recipe(lambda rngs: nnx.List([linear(rngs), nnx.relu]), lambda obj: obj[0](VECTOR))],
    "nnx.LoRA": [
        layer("LoRA", 3, 3, 3),
        Recipe(
            lambda rngs: nnx.LoRA(3, 3, 3, base_module=linear(rngs), rngs=rngs), lambda obj: obj(VECTOR), "base_module"
        ),
    ],
    "nnx.LoRALinear": [layer("LoRALinear", 3, 3, lora_rank=3)],
    "nnx.ModelAndOptimizer": [Recipe(lambda rngs: nnx.ModelAndOptimizer(linear(rngs), optax.adam(0.1)), _train)],
    "nnx.MultiHeadAttention": [
        layer("MultiHeadAttention", 1, 3, decode=False, on=SEQUENCE),
        layer(
            "MultiHeadAttention",
            1,
            3,
            decode=False,
            dropout_rate=0.5,
            deterministic=False,
            on=SEQUENCE,
            variant="dropout",
        ),
        Recipe(_decoder, lambda obj: obj(SEQUENCE[:, :1]), "decoding"),
    ],
    "nnx.MultiMetric": [
        Recipe(
            lambda rngs: nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss")),
            _metric(**_LOGITS, loss=2.0),
        )
    ],
    "nnx.OptimizedLSTMCell": [cell("OptimizedLSTMCell")],
    "nnx.Optimizer": [Recipe(_trainer, lambda pair: _train(pair[1], pair[0]))],
    "nnx.PReLU": [Recipe(lambda rngs: nnx.PReLU(), lambda obj: obj(VECTOR))],
    "nnx.RMSNorm": [layer("RMSNorm", 3)],
    "nnx.RNN": [Recipe(lambda rngs: nnx.RNN(nnx.SimpleCell(3, 3, rngs=rngs), rngs=rngs), _attention)],
    "nnx.RoPE": [  # since Flax 0.12.12
        Recipe(
            lambda _: getattr(nnx, "RoPE")(embedding_size=4, max_seq_len=3),  # noqa: B009 - for checkers of types
            lambda obj: obj(jnp.sin(jnp.arange(12.0)).reshape(3, 4)),
        )
    ],
    "nnx.RngStream": [Recipe(lambda rngs: nnx.RngStream(rngs.params(), tag="noise"), _rng_values)],
    "nnx.Rngs": [
        Recipe(lambda rngs: nnx.Rngs(rngs.params(), dropout=rngs.params()), lambda obj: _rng_values(obj.dropout))
    ],
    "nnx.Sequential": [Recipe(lambda rngs: nnx.Sequential(linear(rngs), nnx.relu), lambda obj: obj(VECTOR))],
    "nnx.SimpleCell": [cell("SimpleCell")],
    "nnx.SpectralNorm": [
        Recipe(lambda rngs: nnx.SpectralNorm(linear(rngs), rngs=rngs), lambda obj: obj(VECTOR, update_stats=True))
    ],
    "nnx.WeightNorm": [Recipe(lambda rngs: nnx.WeightNorm(linear(rngs), rngs=rngs), lambda obj: obj(VECTOR))],
    "nnx.metrics.Accuracy": [Recipe(lambda rngs: nnx.metrics.Accuracy(), _metric(**_LOGITS))],
    "nnx.metrics.Average": [Recipe(lambda rngs: nnx.metrics.Average(), _metric(values=VECTOR))],
    "nnx.metrics.Welford": [Recipe(lambda rngs: nnx.metrics.Welford(), _metric(values=VECTOR))],
    "nnx.bridge.Module": [Recipe(BridgeModule, lambda obj: obj(VECTOR))],
    "nnx.bridge.ToNNX": [
        Recipe(lambda rngs: nnx.bridge.ToNNX(linen.Dense(3), rngs=rngs).lazy_init(VECTOR), lambda obj: obj(VECTOR)),
        Recipe(
            lambda rngs: nnx.bridge.ToNNX(linen.BatchNorm(use_running_average=False), rngs=rngs).lazy_init(VECTOR),
            lambda obj: obj(VECTOR, mutable=["batch_stats"]),
            "batch statistics",
        ),
    ],
}


def classes() -> list[str]:
    """The public classes that can have state, each once."""
    names: dict[type, str] = {}
    for namespace, module in NAMESPACES.items():
        for name, kind in sorted(vars(module).items()):
            if inspect.isclass(kind) and issubclass(kind, nnx.Pytree) and not name.startswith("_"):
                names.setdefault(kind, f"{namespace}.{name}")
    return list(names.values())


def cases() -> Iterator[Case]:
    """Every recipe of every class that this Flax has."""
    for name in classes():
        for recipe in RECIPES.get(name, ()):
            yield Case(name, recipe)


def check(recipe: Recipe, directory: Path) -> list[str]:
    """Saves a used object and restores it into another, used one; both must be the same from then on.

    Returns:
        The keys of its values.
    """
    saved, fresh = (recipe.make(nnx.Rngs(seed)) for seed in (1, 2))
    recipe.use(saved)
    _shift(saved)
    recipe.use(saved)
    recipe.use(fresh)
    for name, one, other in _pairs(saved, fresh):
        assert not np.array_equal(one, other), f"{name} is the same before restoring, so restoring it shows nothing"
    prefix = milepost.Checkpoint(object=saved).write(directory / "ckpt")
    milepost.Checkpoint(object=fresh).read(prefix).assert_consumed()
    for when in ("right after restoring", "after one more step", "after two more steps"):
        for name, one, other in _pairs(saved, fresh):
            np.testing.assert_array_equal(one, other, err_msg=f"{name} {when}")
        outputs = [jax.tree.leaves(recipe.use(each)) for each in (saved, fresh)]
        for one, other in zip(*outputs, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"output {when}")
    keys = [key for key, _ in milepost.list_variables(prefix) if key.endswith("VARIABLE_VALUE")]
    return [key.removeprefix("object/").removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key in keys]


def _leaves(obj: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(nnx.state(obj))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _pairs(left: Any, right: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    one, other = _leaves(left), _leaves(right)
    assert list(one) == list(other)
    for name in one:
        yield name, _elements(one[name]), _elements(other[name])


def _elements(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


def _shift(obj: Any) -> None:
    """Gives everything but keys another value, so that nothing is as it was made."""
    state = nnx.state(obj)

    def shifted(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        return leaf + jnp.asarray(1, leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf + 0.125

    nnx.update(obj, jax.tree.map(shifted, state))


@functools.cache
def version() -> str:
    import flax

    return str(flax.__version__)
