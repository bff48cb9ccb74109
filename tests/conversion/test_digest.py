"""`milepost.digest`: the same values under the same names have one digest, in every format and in memory."""

import hashlib
from typing import Any

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, Variable
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, UnsupportedError
from milepost.tools.cli import main
from tests.tools.commands import damage

TREE: dict[str, Any] = {
    "model": {"w": np.arange(6.0).reshape(2, 3), "b": np.ones(3, np.float32)},
    "step": 7,
    "name": "first",
}


@pytest.fixture
def saved(tmp_path):
    return milepost.save(tmp_path / "tree", TREE)


def training():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.BatchNorm1d(400)).to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(3, 300, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    return Checkpoint(model=model, optimizer=optimizer, epoch=3)


def test_a_tree_and_its_file(saved):
    assert milepost.digest(saved) == milepost.digest(TREE)
    assert milepost.digest(TREE).startswith("sha256-v1:")


def test_it_can_be_computed_without_milepost(tmp_path):
    array = np.arange(3, dtype=np.float32)
    value = hashlib.sha256(b"float32 3\n" + hashlib.sha256(array.tobytes()).digest()).hexdigest()
    expected = hashlib.sha256(f"model/w {value}\n".encode()).hexdigest()
    assert milepost.digest(milepost.save(tmp_path / "c", {"model": {"w": array}})) == f"sha256-v1:{expected}"


@pytest.mark.parametrize(
    "other",
    [
        {**TREE, "step": 8},
        {**TREE, "step": 7.0},
        {**TREE, "name": "second"},
        {"model": TREE["model"], "step": 7},
        {"net": TREE["model"], "step": 7, "name": "first"},
        {**TREE, "model": {"w": TREE["model"]["w"].reshape(3, 2), "b": TREE["model"]["b"]}},
    ],
)
def test_other_values_have_another_digest(other):
    assert milepost.digest(other) != milepost.digest(TREE)


def test_order_and_containers_of_names_do_not_matter():
    reversed_tree = {"name": "first", "step": 7, "model": dict(reversed(TREE["model"].items()))}
    assert milepost.digest(reversed_tree) == milepost.digest(TREE)


def test_files_of_every_format_and_the_live_model(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    checkpoint = training()
    state = checkpoint.model.state_dict()
    torch.save(state, tmp_path / "w.pt")
    safetensors.save_file(state, tmp_path / "w.safetensors")
    path = checkpoint.save(tmp_path / "ckpt")
    divided = CheckpointOptions(data_alignment=1, experimental_sharding_callback=milepost.MaxShardSizePolicy(10_000))
    milepost.convert(path, tmp_path / "model.safetensors", only="model")
    found = {
        "live": milepost.digest(checkpoint.model),
        "state_dict": milepost.digest(state),
        "below a live checkpoint": milepost.digest(checkpoint, below="model"),
        "torch.save": milepost.digest(tmp_path / "w.pt"),
        "safetensors": milepost.digest(tmp_path / "w.safetensors"),
        "converted": milepost.digest(tmp_path / "model.safetensors", below="model"),
        "checkpoint": milepost.digest(path, below="model"),
        "divided": milepost.digest(checkpoint.save(tmp_path / "ckpt", divided), below="model"),
        "weights": milepost.digest(milepost.save_weights(checkpoint.model, tmp_path / "weights")),
        "tree": milepost.digest(milepost.save(tmp_path / "state", state)),
    }
    assert len(set(found.values())) == 1, found


def test_compressed_and_plain_npz(tmp_path):
    arrays = {"a": np.arange(1 << 17), "b": np.ones((2, 3), ">f4")}
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "small.npz", **arrays)
    assert milepost.digest(tmp_path / "plain.npz") == milepost.digest(tmp_path / "small.npz")
    native = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in arrays.items()}
    assert milepost.digest(tmp_path / "plain.npz") == milepost.digest(native)


@pytest.mark.parametrize(
    "selection", [{}, {"ignore": "optimizer"}, {"only": "optimizer"}, {"only": "*weight"}], ids=str
)
def test_a_selection_takes_the_same_of_live_objects_and_of_their_checkpoint(tmp_path, selection):
    checkpoint = training()
    path = checkpoint.save(tmp_path / "ckpt")
    assert milepost.digest(path, **selection) == milepost.digest(checkpoint, **selection)


def test_the_save_counter_does_not_count(tmp_path):
    checkpoint = Checkpoint(v=Variable(1.0))
    numbered = checkpoint.save(tmp_path / "ckpt")
    assert milepost.digest(numbered) == milepost.digest(Checkpoint(v=Variable(1.0)).write(tmp_path / "other"))


def test_what_the_base_has_counts(tmp_path):
    checkpoint = training()
    checkpoint.model[0].requires_grad_(False)
    path = checkpoint.write(tmp_path / "ckpt", CheckpointOptions(base="pretrained"))
    assert milepost.digest(path, below="model") == milepost.digest(checkpoint.model)
    assert milepost.digest(path, only="model/1") == milepost.digest(checkpoint, only="model/1")


def test_options_of_the_manager_do_not_change_it():
    checkpoint = Checkpoint(v=Variable(np.ones(3, np.float32)))
    assert milepost.digest(checkpoint, CheckpointOptions(cast="float16")) == milepost.digest(checkpoint)


def test_a_name_that_names_nothing_is_refused(saved):
    for source in (saved, TREE):
        with pytest.raises(UnsupportedError, match="no value to make a digest of"):
            milepost.digest(source, below="modle")
    with pytest.raises(UnsupportedError, match="did you mean 'model'"):
        milepost.digest(TREE, only="modle")


def test_damage_is_found(tmp_path):
    path = milepost.save(tmp_path / "c", {"w": np.ones(1000)})
    damage(path, "w", 4000)
    with pytest.raises(CorruptCheckpointError):
        milepost.digest(path)
    with pytest.raises(CheckpointNotFoundError):
        milepost.digest(tmp_path / "none")


def test_arrays_of_jax_and_modules_of_nnx(tmp_path):
    jax = pytest.importorskip("jax")
    nnx = pytest.importorskip("flax.nnx")
    tree = {"w": jax.numpy.ones((2, 3)), "layers": [jax.numpy.zeros(2)]}
    assert milepost.digest(tree) == milepost.digest(milepost.save(tmp_path / "tree", tree))
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    assert milepost.digest(Checkpoint(model=model).save(tmp_path / "nnx"), below="model") == milepost.digest(model)


def test_the_command_prints_it(saved, capsys):
    assert main(["digest", saved, "--below", "model", "--ignore", "model/b"]) == 0
    assert capsys.readouterr().out == f"{milepost.digest({'w': TREE['model']['w']})}\n"
    assert main(["digest", f"{saved}-none"]) == 3
