"""Programs of JAX, Optax, Linen, NNX and Equinox."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from benchmarks.versions.training import EVERY, STEPS, Run, batch, loop


def train_tree(run: Run, state: Any, advance: Callable[[Any, int], Any]) -> None:
    """Trains a tree, which `milepost.jax` saves."""
    import jax

    manager, step = None, 0
    if not run.without:
        import milepost.jax

        manager = milepost.jax.TreeManager(run.saves, max_to_keep=2)
        (state, step), _ = manager.restore_latest((state, step))
    run.begin(step, arrays_of(jax.tree.leaves(state)))
    for number in range(step, STEPS):
        state = advance(state, number)
        if manager is not None and (number + 1) % EVERY == 0:
            manager.save((state, number + 1), number + 1)
        run.after(number + 1, arrays_of(jax.tree.leaves(state)))
    run.end(arrays_of(jax.tree.leaves(state)))


def arrays_of(leaves: list[Any]) -> list[Any]:
    """The arrays among leaves, and those of keys."""
    import jax

    arrays = [each for each in leaves if isinstance(each, jax.Array)]
    return [
        jax.random.key_data(each) if jax.dtypes.issubdtype(each.dtype, jax.dtypes.prng_key) else each for each in arrays
    ]


def with_optax(run: Run) -> None:
    """JAX alone, with a tree of parameters, the state of Optax and a key."""
    import jax
    import optax

    rule = optax.adam(1e-2)
    params = {"kernel": jax.numpy.ones((4, 1)), "bias": jax.numpy.zeros(1)}

    def loss(params: Any, key: Any, inputs: Any, targets: Any) -> Any:
        kept = jax.random.bernoulli(key, 0.8, inputs.shape)
        return ((inputs * kept @ params["kernel"] + params["bias"] - targets) ** 2).mean()

    def advance(state: Any, number: int) -> Any:
        params, memory, key = state
        key, used = jax.random.split(key)
        changes, memory = rule.update(jax.grad(loss)(params, used, *batch(number)), memory, params)
        return optax.apply_updates(params, changes), memory, key

    train_tree(run, (params, rule.init(params), jax.random.key(0)), advance)


def with_linen(run: Run) -> None:
    """Linen, with the ``TrainState`` of Flax."""
    import jax
    import optax
    from flax import linen
    from flax.training.train_state import TrainState

    class Net(linen.Module):  # type: ignore[misc]
        @linen.compact  # type: ignore[untyped-decorator]
        def __call__(self, inputs: Any) -> Any:
            return linen.Dense(1)(linen.Dropout(0.2, deterministic=False)(linen.relu(linen.Dense(8)(inputs))))

    net = Net()
    params = net.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, batch(0)[0])
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-2))

    def advance(state: Any, number: int) -> Any:
        trained, key = state
        key, used = jax.random.split(key)
        inputs, targets = batch(number)
        grads = jax.grad(lambda params: ((net.apply(params, inputs, rngs={"dropout": used}) - targets) ** 2).mean())
        return trained.apply_gradients(grads=grads(trained.params)), key

    train_tree(run, (state, jax.random.key(2)), advance)


def with_equinox(run: Run) -> None:
    """Equinox, whose modules are trees."""
    import equinox
    import jax
    import optax

    rule = optax.adam(1e-2)
    net = equinox.nn.MLP(4, 1, 8, 1, key=jax.random.key(0))
    memory = rule.init(equinox.filter(net, equinox.is_array))

    def advance(state: Any, number: int) -> Any:
        net, memory = state
        inputs, targets = batch(number)
        grads = equinox.filter_grad(lambda net: ((jax.vmap(net)(inputs) - targets) ** 2).mean())(net)
        changes, memory = rule.update(grads, memory, equinox.filter(net, equinox.is_array))
        return equinox.apply_updates(net, changes), memory

    train_tree(run, (net, memory), advance)


def with_nnx(run: Run) -> None:
    """NNX: modules, random streams, statistics of batches, and an optimizer."""
    import jax
    import optax
    from flax import nnx

    class Net(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            layers = [nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 8, rngs=rngs)]
            self.layers = nnx.List(layers) if hasattr(nnx, "List") else layers
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.dropout = nnx.Dropout(0.2, rngs=rngs)
            self.last = nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, inputs: Any) -> Any:
            for layer in self.layers:
                inputs = nnx.relu(layer(inputs))
            return self.last(self.dropout(self.norm(inputs)))

    net = Net(nnx.Rngs(0))
    rule = nnx.Optimizer(net, optax.adam(1e-2), wrt=nnx.Param)
    takes_model = "model" in inspect.signature(nnx.Optimizer.update).parameters  # since Flax 0.11

    def step(number: int) -> None:
        inputs, targets = batch(number)
        grads = nnx.grad(lambda net: ((net(inputs) - targets) ** 2).mean())(net)
        rule.update(*((net, grads) if takes_model else (grads,)))

    def arrays() -> list[Any]:
        parts = [*net.layers, net.last]
        variables = [each for part in parts for each in (part.kernel, part.bias)] + [net.norm.mean, net.norm.var]
        memory = arrays_of(jax.tree.leaves(nnx.state(rule.opt_state)))
        return [*(each[...] if hasattr(each, "set_value") else each.value for each in variables), *memory]

    loop(run, {"net": net, "optimizer": rule}, step, arrays)


PROGRAMS: Final[Mapping[str, Callable[[Run], None]]] = {
    "optax": with_optax,
    "linen": with_linen,
    "nnx": with_nnx,
    "equinox": with_equinox,
}
