"""`save_weights` and `load_weights`: a model alone, with the model as the root."""

import os

import pytest

import milepost
from milepost import Checkpoint, Variable


def model(value):
    net = milepost.Module()
    net.bias = Variable([value, 2.0])
    return net


def test_the_files_are_those_that_write_makes_of_the_model(tmp_path):
    keys = [
        milepost.load_checkpoint(path).keys()
        for path in (milepost.save_weights(model(1.0), tmp_path / "w"), Checkpoint(model(1.0)).write(tmp_path / "c"))
    ]
    assert keys[0] == keys[1]
    assert "bias/.ATTRIBUTES/VARIABLE_VALUE" in keys[0]


def test_the_checkpoint_becomes_the_latest_of_its_directory(tmp_path):
    path = milepost.save_weights(model(1.0), tmp_path / "easy_checkpoint")
    assert milepost.latest_checkpoint(tmp_path) == path == os.fspath(tmp_path / "easy_checkpoint")


def test_it_restores(tmp_path):
    live = model(0.0)
    milepost.load_weights(live, milepost.save_weights(model(1.0), tmp_path / "w")).assert_consumed()
    assert live.bias.numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["w.h5", "w.weights.h5", "w.hdf5", "w.keras"])
def test_the_extension_of_another_format_is_refused(tmp_path, name):
    with pytest.raises(milepost.UnsupportedError, match="remove the extension"):
        milepost.save_weights(model(1.0), tmp_path / name)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("call", [milepost.save_weights, milepost.load_weights])
def test_exchanged_arguments_are_refused(tmp_path, call):
    with pytest.raises(milepost.UnsupportedError, match="model, path"):
        call(tmp_path / "w", model(1.0))


def test_a_malformed_state_file_is_told_before_anything_is_saved(tmp_path):
    (tmp_path / "checkpoint").write_text("x")
    with pytest.raises(milepost.StateFileError):
        milepost.save_weights(model(1.0), tmp_path / "w")
    assert os.listdir(tmp_path) == ["checkpoint"]
