"""Directories as older versions of Orbax and Flax wrote them, with a file `checkpoint` in MessagePack."""

import json
import os
import shutil
from typing import Any

import numpy as np
import pytest

import milepost
from milepost import CheckpointNotFoundError, StateFileError

pytest.importorskip("jax")
pytest.importorskip("orbax.checkpoint")
pytest.importorskip("msgpack")
import jax.numpy as jnp
import orbax.checkpoint as ocp

import milepost.jax

msgpack: Any = pytest.importorskip("msgpack")

TREE = {
    "params": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32)},
    "layers": [np.full(2, 3.0), np.int32(7)],
    "step": 7,
    "note": "text",
}


def packed(tree, path=(), *, aggregated=True):
    """A tree as Orbax before 0.6 writes it: arrays of its own as names, aggregated ones in extensions of MessagePack."""
    if isinstance(tree, dict):
        return {name: packed(each, (*path, name), aggregated=aggregated) for name, each in tree.items()}
    if isinstance(tree, list):
        return [packed(each, (*path, str(number)), aggregated=aggregated) for number, each in enumerate(tree)]
    if not aggregated:
        return f"PLACEHOLDER://{'.'.join(path)}"
    if isinstance(tree, (np.ndarray, np.generic)):
        array = np.asarray(tree)
        kind = 1 if isinstance(tree, np.ndarray) else 3
        return msgpack.ExtType(kind, msgpack.packb((array.shape, array.dtype.name, array.tobytes())))
    return tree


@pytest.fixture
def first_form(tmp_path):
    """An item of the first versions, all aggregated."""
    path = tmp_path / "first"
    path.mkdir()
    (path / "checkpoint").write_bytes(msgpack.packb(packed(TREE)))
    return path


@pytest.fixture
def described(tmp_path):
    """An item with a description, of which some arrays are aggregated."""
    path = tmp_path / "described"
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).save(path, TREE)
    tree = packed(TREE, aggregated=False)
    description = json.loads((path / "_METADATA").read_text())
    for names, value in (("('params', 'b')", TREE["params"]["b"]), ("('step',)", 7)):
        description["tree_metadata"][names]["value_metadata"] = {"value_type": "np.ndarray", "skip_deserialize": True}
        holder = tree["params"] if "params" in names else tree
        holder["b" if "params" in names else "step"] = packed(value)
    (path / "_METADATA").write_text(json.dumps(description))
    (path / "checkpoint").write_bytes(msgpack.packb(tree))
    shutil.rmtree(path / "array_metadatas", ignore_errors=True)
    return path


@pytest.fixture(params=["first_form", "described"])
def directory(request):
    return request.getfixturevalue(request.param)


def spellings(directory, monkeypatch):
    monkeypatch.chdir(directory.parent)
    name = directory.name
    return [str(directory), directory, name, f"./{name}", f"{name}/", f"../{directory.parent.name}/{name}"]


def test_aggregated_arrays_are_arrays(directory):
    np.testing.assert_array_equal(milepost.load_variable(directory, "params/b"), TREE["params"]["b"])
    np.testing.assert_array_equal(milepost.load_variable(directory, "params/w"), TREE["params"]["w"])
    assert milepost.load_variable(directory, "params/b").dtype == np.float32
    assert milepost.load_variable(directory, "step") == 7
    assert milepost.load_variable(directory, "note") == b"text"
    assert dict(milepost.list_variables(directory))["layers/0"] == [2]


def test_a_variable_of_text_does_not_take_an_array(directory):
    checkpoint = milepost.Checkpoint(params={"b": milepost.Variable("")})
    with pytest.raises(milepost.MismatchError):
        checkpoint.restore(directory)


def test_every_call_takes_every_spelling_of_the_path(directory, monkeypatch):
    for path in spellings(directory, monkeypatch):
        reader = milepost.load_checkpoint(path)
        assert reader.get_tensor("params/w").shape == (2, 3)
        reader.verify()
        assert milepost.load_variable(path, "params/w")[1, 2] == 5
        assert ("params/w", [2, 3]) in milepost.list_variables(path)
        for call in ("restore", "read"):
            w = milepost.Variable(np.zeros((2, 3), np.float32))
            layer = milepost.Module()
            layer.w = w
            status = getattr(milepost.Checkpoint(params=layer), call)(path)
            status.expect_partial().assert_existing_objects_matched()
            assert w.numpy()[1, 2] == 5
        tree, status = milepost.jax.restore(path, {"params": {"w": jnp.zeros((2, 3))}})
        status.expect_partial().assert_existing_objects_matched()
        assert tree["params"]["w"][1, 2] == 5


def test_what_waits_is_read_after_the_program_has_changed_its_directory(described, monkeypatch):
    monkeypatch.chdir(described.parent)
    checkpoint = milepost.Checkpoint()
    status = checkpoint.restore(described.name)
    monkeypatch.chdir("/")
    checkpoint.params = {"w": milepost.Variable(np.zeros((2, 3), np.float32))}
    status.expect_partial()
    assert checkpoint.params["w"].numpy()[1, 2] == 5


@pytest.mark.parametrize("call", [milepost.latest_checkpoint, milepost.get_checkpoint_state])
def test_its_file_is_not_called_a_state_file_and_is_not_to_be_deleted(directory, call):
    with pytest.raises(StateFileError, match="Orbax or Flax") as caught:
        call(directory)
    assert "delete" not in caught.value.remedy
    assert "keep it" in caught.value.remedy


def test_a_save_beside_it_leaves_it_alone(directory):
    before = (directory / "checkpoint").read_bytes()
    with pytest.raises(StateFileError, match="Orbax or Flax"):
        milepost.Checkpoint(v=milepost.Variable(1)).save(directory / "ckpt")
    assert (directory / "checkpoint").read_bytes() == before


class TestStepsOfFlax:
    def test_a_directory_of_them_says_which_there_are(self, tmp_path, described):
        os.rename(described, tmp_path / "checkpoint_3")
        with pytest.raises(CheckpointNotFoundError) as caught:
            milepost.load_checkpoint(tmp_path)
        assert str(tmp_path / "checkpoint_3") in caught.value.remedy
        assert milepost.load_variable(tmp_path / "checkpoint_3", "params/b").tolist() == [1, 1, 1]

    def test_those_that_are_files_are_read(self, tmp_path):
        checkpoints = pytest.importorskip("flax.training.checkpoints")
        flax = pytest.importorskip("flax")
        flax.config.update("flax_use_orbax_checkpointing", False)
        try:
            checkpoints.save_checkpoint(str(tmp_path), {"w": np.ones(2)}, 3)
        finally:
            flax.config.update("flax_use_orbax_checkpointing", True)
        assert milepost.load_variable(tmp_path / "checkpoint_3", "w").tolist() == [1, 1]


def test_a_step_of_a_manager_without_a_mark_is_known_by_its_number(tmp_path, described):
    os.makedirs(tmp_path / "run" / "5")
    os.rename(described, tmp_path / "run" / "5" / "state")
    assert milepost.load_variable(tmp_path / "run" / "5", "state/params/b").tolist() == [1, 1, 1]
