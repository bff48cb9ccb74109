"""The guide in Flax NNX prints the guide's lines, and what it wrote is TensorFlow's format."""

import pytest

import milepost
from tests.examples.guide import Guide
from tests.examples.scripts import EXAMPLES, run

pytest.importorskip("flax.nnx")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide_flax")
    return directory, run(EXAMPLES / "guide_flax.py", directory, "flax.nnx", "optax")


class TestGuide(Guide):
    """The script in this framework."""


def test_it_says_what_was_not_restored_and_what_was(ran):
    assert "assert_consumed: checkpoint and program do not match exactly" in ran[1]
    assert "optimizer restored at step 100" in ran[1]


def test_keys_are_paths_of_attributes(ran):
    keys = [key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key, _ in milepost.list_variables(ran[0] / "tf_ckpts")]
    assert keys == [
        "_CHECKPOINTABLE_OBJECT_GRAPH",
        "iterator/position",
        "net/l1/bias",
        "net/l1/kernel",
        "optimizer/opt_state/0/count",
        "optimizer/opt_state/0/mu/l1/bias",
        "optimizer/opt_state/0/mu/l1/kernel",
        "optimizer/opt_state/0/nu/l1/bias",
        "optimizer/opt_state/0/nu/l1/kernel",
        "optimizer/step",
        "save_counter",
        "step",
    ]


def test_models_are_restored_whole(ran):
    assert ran[1][-2:] == [
        "Net: 2 weights restored from ./easy_checkpoint",
        "Stack: 4 weights restored from ./stack_checkpoint",
    ]
