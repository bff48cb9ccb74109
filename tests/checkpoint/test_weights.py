"""Weights of a model that a checkpoint has below its root."""

import warnings

import pytest

import milepost
from milepost import Checkpoint, Module, UnrestoredWarning, Variable


def net(value):
    made = Module()
    made.kernel = Variable([value])
    return made


@pytest.mark.parametrize("name", ["model", "net"])
def test_loading_weights_of_a_training_run_says_where_they_are(name, tmp_path):
    path = Checkpoint(**{name: net(1.0)}, step=Variable(1)).save(tmp_path / "ckpt")
    live = net(0.0)
    with pytest.warns(UnrestoredWarning, match=rf"milepost\.Checkpoint\({name}=\.\.\.\)\.restore"):
        status = milepost.load_weights(live, path)
    with pytest.raises(milepost.UnmatchedError, match=f"under '{name}'"):
        status.expect_partial().assert_nontrivial_match()
    Checkpoint(**{name: live}).restore(path).expect_partial()
    assert live.kernel.numpy() == [1]


def test_loading_weights_that_are_there_says_nothing(tmp_path):
    path = milepost.save_weights(net(1.0), tmp_path / "weights")
    live = net(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        milepost.load_weights(live, path).assert_consumed()
    assert live.kernel.numpy() == [1]
