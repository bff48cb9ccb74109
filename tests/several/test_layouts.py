"""Weights that are laid out otherwise, over two processes with FSDP2 of PyTorch."""

import numpy as np
import pytest

import milepost
from milepost.layouts import inverse
from tests.several.programs import JAX, TORCH, run

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
models = pytest.importorskip("tests.engine.layouts.torch_models")

TWO = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from tests.engine.layouts import torch_models as models
from milepost.layouts import inverse

def sharded(block, seed=0):
    torch.manual_seed(seed)
    model = models.Model(block)
    mesh = init_device_mesh("cpu", (size,))
    for each in model.blocks:
        fully_shard(each, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, models.adamw(model.parameters())

def restored(block, path, steps):
    model, optimizer = sharded(block, seed=1)
    status = Checkpoint(model=model, optimizer=optimizer).read(path, convert=steps, options=CheckpointOptions(**options))
    status.assert_consumed().assert_existing_objects_matched()
    models.train(model, optimizer, 7)
    return models.output(model).flatten().tolist()

model, optimizer = sharded(models.ApartBlock)
for number in range(2):
    models.train(model, optimizer, number)
Checkpoint(model=model, optimizer=optimizer).write(f"{directory}/apart", options=CheckpointOptions(**options))
results["fused"] = restored(models.FusedBlock, f"{directory}/apart", models.STEPS)
results["apart"] = restored(models.ApartBlock, f"{directory}/apart", [*models.STEPS, *inverse(models.STEPS)])
results["of one"] = restored(models.ApartBlock, f"{directory}/fused", inverse(models.STEPS))
wrong = [*models.STEPS[:1], *models.STEPS[2:], models.Transpose("model/blocks/*/experts", axes=(2, 1, 0))]
model, optimizer = sharded(models.FusedBlock)
attempt("wrong", lambda: restored(models.FusedBlock, f"{directory}/apart", wrong) and "restored")
models.train(model, optimizer, 7)
results["next"] = models.output(model).flatten().tolist()
"""


JAX_TWO = """
import jax.numpy as jnp
import milepost.jax
from milepost.layouts import Concatenate, inverse
from tests.several.jax_states import sharded
steps = [Concatenate([f"**/{name}" for name in "qkv"], "**/qkv", axis=1)]
together = CheckpointOptions(**options)
arrays = {name: np.arange(32.0, dtype=np.float32).reshape(8, 4) + 100 * number for number, name in enumerate("qkv")}
apart = {"params": {name: sharded(value, ("line", None, "d")) for name, value in arrays.items()}}
path = milepost.jax.save(directory + "/apart", apart, together)
fused = {"params": {"qkv": sharded(np.zeros((8, 12), np.float32), ("line", "d"))}}
made, status = milepost.jax.restore(path, fused, together, convert=steps)
status.assert_consumed().assert_existing_objects_matched()
whole = np.concatenate([*arrays.values()], 1)
results["fused"] = all(np.array_equal(shard.data, whole[shard.index]) for shard in made["params"]["qkv"].addressable_shards)
path = milepost.jax.save(directory + "/fused", made, together)
zeros = {"params": {name: sharded(np.zeros_like(value), ("line", "d")) for name, value in arrays.items()}}
back, status = milepost.jax.restore(path, zeros, together, convert=inverse(steps))
status.assert_consumed()
results["apart"] = all(
    np.array_equal(shard.data, value[shard.index]) for name, value in arrays.items() for shard in back["params"][name].addressable_shards
)
"""


def trained_on(model, optimizer):
    models.train(model, optimizer, 7)
    return models.output(model).flatten().tolist()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("layouts")


@pytest.fixture(scope="module")
def two(directory):
    """What each of two processes has found."""
    model, optimizer = models.trained(models.FusedBlock)
    milepost.Checkpoint(model=model, optimizer=optimizer).write(str(directory / "fused"))
    return run(TWO, 2, directory, TORCH)


@pytest.mark.parametrize(
    ("result", "block"), [("fused", models.ApartBlock), ("apart", models.ApartBlock), ("of one", models.FusedBlock)]
)
def test_fsdp_trains_on_in_another_layout(two, result, block):
    """Each process reads what it needs of what two processes have saved, and of what one has."""
    expected = trained_on(*models.trained(block))
    for results in two:
        np.testing.assert_allclose(results[result], expected, rtol=1e-4, atol=1e-5)


def test_pieces_of_two_processes_are_converted_by_one(two, directory):
    """The checkpoint that comes out has whole tensors, and the inverse gives back each."""
    milepost.convert(directory / "apart", directory / "one", convert=models.STEPS)
    back = milepost.load(str(directory / "one"), separator="/", convert=inverse(models.STEPS))
    for name, value in milepost.load(str(directory / "apart"), separator="/").items():
        assert np.asarray(back[name]).tobytes() == np.asarray(value).tobytes()


def test_a_step_that_does_not_fit_ends_the_restore_of_each_process(two):
    for results in two:
        assert results["wrong"].startswith("MismatchError: wrong shape: a saved value does not fit the live object")
        assert len(results["next"]) == 12


def test_arrays_of_jax_over_two_processes_come_back(tmp_path):
    pytest.importorskip("jax", reason="JAX is not installed")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    for results in run(JAX_TWO, 2, tmp_path, JAX, environment=flags):
        assert results == {"fused": True, "apart": True}
