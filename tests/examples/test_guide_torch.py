"""The guide in PyTorch prints the guide's lines, and what it wrote is TensorFlow's format."""

import pytest

import milepost
from tests.examples.guide import Guide
from tests.examples.scripts import EXAMPLES, run

pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide_torch")
    return directory, run(EXAMPLES / "guide_torch.py", directory, "torch")


class TestGuide(Guide):
    """The script in this framework."""

    weight = "weight"
    shape = "[5, 1]"


def test_it_says_what_was_not_restored_and_what_was(ran):
    assert "assert_consumed: checkpoint and program do not match exactly" in ran[1]
    assert "optimizer restored at step 100, learning rate 0.1" in ran[1]


def test_keys_are_paths_of_attributes_and_slots_belong_to_their_parameter(ran):
    keys = [key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key, _ in milepost.list_variables(ran[0] / "tf_ckpts")]
    assert [key for key in keys if key.startswith("net/l1/bias")] == [
        "net/l1/bias",
        "net/l1/bias/.OPTIMIZER_SLOT/optimizer/exp_avg",
        "net/l1/bias/.OPTIMIZER_SLOT/optimizer/exp_avg_sq",
        "net/l1/bias/.OPTIMIZER_SLOT/optimizer/step",
    ]
    assert "optimizer/param_groups/0/lr" in keys


def test_models_are_restored_whole(ran):
    assert ran[1][-2:] == [
        "Net: 2 weights restored from ./easy_checkpoint",
        "Stack: 6 weights restored from ./stack_checkpoint",
    ]
