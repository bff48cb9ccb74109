"""Trainings that resume exactly, and the same with something that their checkpoints do not hold, for tests of `assert_resumes`."""

import os
import random
import threading

import numpy as np

import milepost

STEPS = 8


class NumPyRun:
    """A training of NumPy.

    Args:
        directory: Where it saves.
        left_out: What its checkpoint does not hold.
    """

    def __init__(self, directory, left_out=()):
        self.noise = np.random.default_rng(0)
        self.average = {"weights": np.zeros(3)}
        self.count = 0
        self.position = 0
        random.seed(0)
        np.random.seed(0)
        parts = {
            "noise": self.noise,
            "average": self.average,
            "random": milepost.RandomState(),
            "count": 0,
            "position": 0,
        }
        self.left_out = left_out
        self.state = milepost.Checkpoint(
            weights=np.zeros(3), step=0, **{name: part for name, part in parts.items() if name not in left_out}
        )
        self.average = getattr(self.state, "average", self.average)
        self.batches = [np.full(3, float(number)) for number in range(STEPS)]
        self.manager = milepost.CheckpointManager(self.state, directory, max_to_keep=3)
        self.manager.restore_or_initialize()
        self.count = getattr(self.state, "count", 0)
        self.position = getattr(self.state, "position", 0)

    def steps(self):
        for batch in self.batches[self.position :]:
            self.count += 1
            self.position += 1
            self.state.weights += batch * self.noise.normal() * random.random() / self.count
            self.average["weights"] = 0.5 * self.average["weights"] + self.state.weights
            self.state.step += 1
            for name in ("count", "position"):  # a program may keep such numbers for itself
                if name not in self.left_out:
                    setattr(self.state, name, getattr(self, name))
            if self.state.step % 2 == 0:
                self.manager.save(self.state.step)
            yield self.state.step, {"weights": self.state.weights, "average": self.average["weights"]}


def numpy_whole(directory):
    yield from NumPyRun(directory).steps()


def numpy_lacking(directory):
    yield from NumPyRun(directory, ["noise", "average", "random", "count", "position"]).steps()


def torch_run(directory, left_out=()):
    import torch
    from torch import nn

    from milepost.accelerate import DataPosition

    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    sampling = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.arange(48.0).reshape(16, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, generator=sampling)
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    average = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda old, new, _: 0.5 * old + 0.5 * new)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    noise = torch.Generator().manual_seed(2)
    parts = {
        "average": average,
        "schedule": schedule,
        "sampling": sampling,
        "noise": noise,
        "data": DataPosition(loader),
        "random": milepost.RandomState(),
    }
    state = milepost.Checkpoint(
        net=net, optimizer=optimizer, step=0, **{name: part for name, part in parts.items() if name not in left_out}
    )
    manager = milepost.CheckpointManager(state, directory, max_to_keep=3)
    manager.restore_or_initialize()
    while state.step < STEPS:
        for (x,) in loader:
            loss = (net(x / 48 + torch.randn(3, generator=noise)) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            average.update_parameters(net)
            state.step += 1
            if state.step % 2 == 0:
                manager.save(state.step)
            yield state.step, {"loss": loss.detach(), "average": average.module[0].weight.detach()}


def torch_whole(directory):
    yield from torch_run(directory)


def torch_lacking(directory):
    yield from torch_run(directory, ["average", "schedule", "noise", "random", "data"])


def jax_run(directory, left_out=()):
    import jax
    import jax.numpy as jnp
    import optax

    import milepost.jax

    optimizer = optax.adam(0.05)
    params = {"w": jnp.zeros(3)}
    key = jax.random.key(0)
    average = {"w": jnp.zeros(3)}
    opt_state = optimizer.init(params)
    manager = milepost.jax.TreeManager(directory, max_to_keep=3)

    def parts(**parts):
        return {name: part for name, part in parts.items() if name not in left_out}

    tree, _ = manager.restore_latest(parts(params=params, opt_state=opt_state, key=key, average=average, step=0))
    params, opt_state, step = tree["params"], tree["opt_state"], tree["step"]
    key, average = tree.get("key", key), tree.get("average", average)

    @jax.jit
    def train_step(params, opt_state, average, key):
        x = jax.random.normal(key, (8, 3))
        loss, gradients = jax.value_and_grad(lambda params: jnp.square(x @ params["w"] - 1).mean())(params)
        updates, opt_state = optimizer.update(gradients, opt_state)
        params = optax.apply_updates(params, updates)
        return params, opt_state, {"w": 0.5 * average["w"] + 0.5 * params["w"]}, loss

    while step < STEPS:
        key, own = jax.random.split(key)
        params, opt_state, average, loss = train_step(params, opt_state, average, own)
        step += 1
        if step % 2 == 0:
            manager.save(parts(params=params, opt_state=opt_state, key=key, average=average, step=step), step)
        yield step, {"loss": loss, "average": average}


def jax_whole(directory):
    yield from jax_run(directory)


def jax_lacking(directory):
    yield from jax_run(directory, ["key", "average"])


def nnx_run(directory, left_out=()):
    import jax.numpy as jnp
    import optax
    from flax import nnx

    net = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adam(0.01), wrt=nnx.Param)
    streams = nnx.Rngs(data=2)
    batches_seen = {"count": 0}
    parts = {"streams": streams}
    state = milepost.Checkpoint(
        net=net, optimizer=optimizer, step=0, **{name: part for name, part in parts.items() if name not in left_out}
    )
    manager = milepost.CheckpointManager(state, directory, max_to_keep=3)
    manager.restore_or_initialize()

    @nnx.jit
    def train_step(net, optimizer, x):
        loss, gradients = nnx.value_and_grad(lambda net, x: jnp.square(net(x) - 1).mean())(net, x)
        optimizer.update(net, gradients)
        return loss

    while state.step < STEPS:
        loss = train_step(net, optimizer, streams.data.normal((8, 3)))
        batches_seen["count"] += 1
        state.step += 1
        if state.step % 2 == 0:
            manager.save(state.step)
        yield state.step, loss


def nnx_whole(directory):
    yield from nnx_run(directory)


def nnx_lacking(directory):
    yield from nnx_run(directory, ["streams"])


def keras_run(directory, keras, left_out=()):
    keras.utils.set_random_seed(0)
    noise = np.random.default_rng(1)
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.01), loss="mse", run_eagerly=True)
    rate = {"factor": 1.0}
    parts = {"noise": noise, "rate": rate, "random": milepost.RandomState()}
    state = milepost.Checkpoint(
        model=model, step=0, **{name: part for name, part in parts.items() if name not in left_out}
    )
    rate = getattr(state, "rate", rate)
    manager = milepost.CheckpointManager(state, directory, max_to_keep=3)
    manager.restore_or_initialize()
    while state.step < STEPS:
        x = noise.normal(size=(8, 3)).astype(np.float32) + np.float32(np.random.normal())
        rate["factor"] *= 0.5
        model.optimizer.learning_rate = 0.01 * rate["factor"]
        loss = model.train_on_batch(x, x.sum(1, keepdims=True))
        state.step += 1
        if state.step % 2 == 0:
            manager.save(state.step)
        yield state.step, {"loss": loss, "kernel": model.layers[0].kernel.numpy()}


def keras_lacking(directory):
    import keras

    yield from keras_run(directory, keras, ["noise", "rate", "random"])


def tf_keras_whole(directory):
    import tf_keras

    yield from keras_run(directory, tf_keras)


def _counting(directory, **parts):
    """A state that counts steps, and its manager."""
    state = milepost.Checkpoint(step=0, **parts)
    return state, milepost.CheckpointManager(state, directory, max_to_keep=3)


def never_restoring(directory):
    state = milepost.Checkpoint(step=0)
    options = milepost.CheckpointOptions(overwrite=True)
    manager = milepost.CheckpointManager(state, directory, max_to_keep=3, options=options)
    while state.step < STEPS:
        state.step += 1
        manager.save(state.step)
        yield state.step, state.step


def not_repeatable(directory):
    state, manager = _counting(directory)
    manager.restore_or_initialize()
    chance = random.SystemRandom()
    while state.step < STEPS:
        state.step += 1
        manager.save(state.step)
        yield state.step, chance.random()


def hidden_difference(directory):
    state, manager = _counting(directory, hidden=0)
    manager.restore_or_initialize()
    count = 0
    while state.step < STEPS:
        state.step += 1
        count += 1
        state.hidden = count
        if state.step % 4 == 0:
            manager.save(state.step)
        yield state.step, None


def other_zeros(directory):
    state, manager = _counting(directory, zero=np.zeros(2))
    is_first = manager.restore_or_initialize() is None
    while state.step < STEPS:
        state.step += 1
        state.zero = np.full(2, 0.0 if is_first else -0.0)
        if state.step % 4 == 0:
            manager.save(state.step)
        yield state.step, None


def leaving_out(directory):
    state, manager = _counting(directory)
    if manager.restore_or_initialize() is not None:
        state.step += 1
    while state.step < STEPS:
        state.step += 1
        if state.step % 5 == 0:
            manager.save(state.step)
        yield state.step, None


def failing_later(directory):
    state, manager = _counting(directory)
    if manager.restore_or_initialize() is not None:
        raise RuntimeError("no such file")
    while state.step < STEPS:
        state.step += 1
        manager.save(state.step)
        yield state.step, None


def endless(directory):
    threading.Event().wait()
    yield 1, directory


def elsewhere(directory):
    state, manager = _counting(os.environ["ELSEWHERE"])
    while state.step < STEPS:
        state.step += 1
        manager.save(state.step)
        yield state.step, None


def unseeded(directory):
    state, manager = _counting(directory, random=milepost.RandomState())
    manager.restore_or_initialize()
    while state.step < STEPS:
        state.step += 1
        manager.save(state.step)
        yield state.step, None


def without_number(directory):
    yield {"loss": 0.5}


def yielding_objects(directory):
    yield 1, {"loss": object()}
