"""milepost needs none of the frameworks, and each of them without the others.

Each program runs in a process of its own, in which the frameworks that it does without cannot be imported.
"""

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.test_project import FRAMEWORKS

REFUSE = """
    import sys

    class Without:
        def __init__(self, finder):
            self.finder = finder

        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in REFUSED:
                return None
            return self.finder.find_spec(name, path, target)

        def __getattr__(self, name):
            return getattr(self.finder, name)

    sys.meta_path[:] = map(Without, sys.meta_path)
    sys.path.insert(0, ROOT)
"""
ROUND_TRIP = """
    import tempfile
    import milepost

    def round_trip(make, change):
        saved = milepost.Checkpoint(**make())
        change(saved)
        path = saved.save(tempfile.mkdtemp() + "/ckpt")
        fresh = milepost.Checkpoint(**make())
        fresh.restore(path).assert_consumed()
        return saved, fresh
"""
NOTHING = """
    import numpy as np
    saved, fresh = round_trip(
        lambda: {"v": milepost.Variable(np.zeros(2)), "listed": [milepost.Variable(0)], "random": milepost.RandomState()},
        lambda saved: saved.v.assign([1, 2]),
    )
    assert fresh.v.numpy().tolist() == [1, 2]
"""
TORCH = """
    import torch

    def make():
        net = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
        net(torch.ones(2, 2))
        optimizer = torch.optim.AdamW(net.parameters())
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)
        return {"net": net, "optimizer": optimizer, "schedule": schedule, "random": milepost.RandomState()}

    def train(saved):
        saved.net(torch.ones(2, 2)).sum().backward()
        saved.optimizer.step()
        saved.schedule.step()

    saved, fresh = round_trip(make, train)
    assert torch.equal(fresh.net[0].weight, saved.net[0].weight)
    moments = [each.optimizer.state[each.net[2].weight]["exp_avg"] for each in (saved, fresh)]
    assert torch.equal(*moments) and moments[0].any()
"""
TORCHDATA = """
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader
    saved, fresh = round_trip(
        lambda: {"data": StatefulDataLoader(list(range(6)), batch_size=2)}, lambda saved: next(iter(saved.data))
    )
    assert [batch.tolist() for batch in fresh.data] == [[2, 3], [4, 5]]
"""
JAX = """
    import jax, jax.numpy as jnp
    import milepost.jax

    def change(saved):
        saved.params = {"w": jnp.ones(3), "b": [jnp.float32(2)]}
        saved.key, _ = jax.random.split(saved.key)

    saved, fresh = round_trip(
        lambda: {"params": {"w": jnp.zeros(3), "b": [jnp.float32(0)]}, "key": jax.random.key(0)}, change
    )
    assert fresh.params["w"].tolist() == [1, 1, 1]
    tree, _ = milepost.jax.restore(milepost.jax.save(tempfile.mkdtemp() + "/c", saved.params), fresh.params)
    assert tree["b"] == [2]
"""
OPTAX = """
    import jax.numpy as jnp, optax

    def make():
        params = {"w": jnp.ones(3)}
        return {"params": params, "state": optax.adam(0.1).init(params)}

    def train(saved):
        updates, saved.state = optax.adam(0.1).update({"w": jnp.ones(3)}, saved.state)
        saved.params = optax.apply_updates(saved.params, updates)

    saved, fresh = round_trip(make, train)
    assert (fresh.state[0].mu["w"] == saved.state[0].mu["w"]).all()
"""
FLAX = """
    import jax.numpy as jnp
    from flax import nnx

    def change(saved):
        saved.net.kernel[...] = jnp.ones((2, 3))

    saved, fresh = round_trip(lambda: {"net": nnx.Linear(2, 3, rngs=nnx.Rngs(0))}, change)
    assert fresh.net.kernel[...].sum() == 6
"""
EQUINOX = """
    import equinox, jax, jax.numpy as jnp

    def change(saved):
        saved.net = equinox.tree_at(lambda net: net.weight, saved.net, jnp.ones((3, 2)))

    saved, fresh = round_trip(lambda: {"net": equinox.nn.Linear(2, 3, key=jax.random.key(0))}, change)
    assert fresh.net.weight.sum() == 6
"""
KERAS_ON_JAX = """
    import os
    os.environ["KERAS_BACKEND"] = "jax"
    import keras, numpy as np

    def make():
        net = keras.Sequential([keras.layers.Dense(2)])
        net.compile("adam", "mse")
        net.train_on_batch(np.ones((2, 3)), np.ones((2, 2)))
        return {"net": net}

    saved, fresh = round_trip(make, lambda saved: saved.net.train_on_batch(np.ones((2, 3)), np.zeros((2, 2))))
    assert (fresh.net.layers[0].kernel.numpy() == saved.net.layers[0].kernel.numpy()).all()
"""
DATASETS = """
    import datasets

    def make():
        return {"data": datasets.Dataset.from_dict({"x": list(range(4))}).to_iterable_dataset()}

    saved, fresh = round_trip(make, lambda saved: next(iter(saved.data)))
    assert [each["x"] for each in fresh.data] == [1, 2, 3]
"""
GRAIN = """
    import grain

    def make():
        return {"data": iter(grain.MapDataset.range(6).to_iter_dataset())}

    saved, fresh = round_trip(make, lambda saved: next(saved.data))
    assert list(fresh.data) == [1, 2, 3, 4, 5]
"""
PROGRAMS = {
    "nothing": (NOTHING, set()),
    "torch": (TORCH, {"torch"}),
    "torchdata": (TORCHDATA, {"torch", "torchdata"}),
    "jax": (JAX, {"jax"}),
    "optax": (OPTAX, {"jax", "optax"}),
    "flax": (FLAX, {"jax", "flax", "optax", "orbax"}),
    "equinox": (EQUINOX, {"jax", "equinox"}),
    "keras on jax": (KERAS_ON_JAX, {"jax", "keras"}),
    "datasets": (DATASETS, {"datasets"}),
    "grain": (GRAIN, {"grain"}),
}
"""Each with the frameworks that it may import; flax imports orbax and optax by itself, if they are there."""
ROOT = Path(__file__).parents[1]


def run(program, allowed):
    code = REFUSE + ROUND_TRIP + program
    done = subprocess.run(
        [sys.executable, "-c", f"REFUSED = {FRAMEWORKS - allowed!r}; ROOT = {str(ROOT)!r}\n{textwrap.dedent(code)}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_works_where_no_other_framework_can_be_imported(name):
    program, allowed = PROGRAMS[name]
    for framework in allowed:
        if importlib.util.find_spec(framework) is None:
            pytest.skip(f"{framework} is not installed")
    run(program, allowed)


def test_a_program_without_frameworks_imports_none_where_all_are():
    run(f"{NOTHING}\n    assert not {FRAMEWORKS!r} & sys.modules.keys()", FRAMEWORKS)


def test_a_program_that_needs_what_cannot_be_imported_fails_here():
    with pytest.raises(AssertionError, match="No module named 'torch'"):
        run(TORCH, {"jax"})


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_files_of_others_are_read_without_them(tmp_path, kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensors = {"w": torch.ones(3), "v": torch.zeros(2)}
    path = tmp_path / f"model.{kind}"
    if kind == "pt":
        torch.save(tensors, path)
    else:
        pytest.importorskip("safetensors", reason="safetensors is not installed")
        from safetensors.torch import save_file

        save_file(tensors, path)
    program = f"""
    import numpy as np
    fresh = milepost.Checkpoint(w=np.zeros(3, np.float32), v=np.ones(2, np.float32))
    fresh.read({str(path)!r}).assert_consumed()
    assert fresh.w.tolist() == [1, 1, 1]
    """
    run(program, set())
