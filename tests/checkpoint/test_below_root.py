"""Values of a root that a checkpoint has below its own root."""

import warnings

import pytest

import milepost
from milepost import Checkpoint, Module, UnrestoredWarning, Variable


def net(value):
    made = Module()
    made.kernel = Variable([value])
    return made


@pytest.mark.parametrize("name", ["model", "net"])
def test_a_restore_of_a_training_run_into_the_model_alone_says_where_its_values_are(name, tmp_path):
    path = Checkpoint(**{name: net(1.0)}, step=Variable(1)).save(tmp_path / "ckpt")
    live = net(0.0)
    with pytest.warns(UnrestoredWarning, match=rf"milepost\.Checkpoint\({name}=\.\.\.\)\.restore"):
        status = Checkpoint(live).read(path)
    with pytest.raises(milepost.UnmatchedError, match=f"under '{name}'"):
        status.expect_partial().assert_nontrivial_match()
    Checkpoint(**{name: live}).restore(path).expect_partial()
    assert live.kernel.numpy() == [1]


def test_a_restore_of_values_that_are_there_says_nothing(tmp_path):
    path = Checkpoint(net(1.0)).write(tmp_path / "weights")
    live = net(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpoint(live).read(path).assert_consumed()
    assert live.kernel.numpy() == [1]
