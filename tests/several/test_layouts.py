"""Weights that are laid out otherwise, over two processes with FSDP2 of PyTorch."""

import numpy as np
import pytest

import milepost
from milepost.layouts import inverse
from tests.several.programs import TORCH, run

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
