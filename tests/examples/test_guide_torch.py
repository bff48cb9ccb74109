"""The guide in PyTorch prints the guide's lines, and what it wrote is TensorFlow's format."""

import numpy as np
import pytest

import milepost
from tests.examples.scripts import EXAMPLES, FILES, KEPT, losses, run, vectors

pytest.importorskip("torch", reason="PyTorch is not installed")
WEIGHT = "net/l1/weight/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide_torch")
    return directory, run(EXAMPLES / "guide_torch.py", directory)


def test_it_prints_the_guides_lines(ran):
    lines = ran[1]
    assert lines[0] == "Initializing from scratch."
    assert lines[1] == "Saved checkpoint for step 10: ./tf_ckpts/ckpt-1"
    assert "Restored from ./tf_ckpts/ckpt-5" in lines
    assert "Saved checkpoint for step 100: ./tf_ckpts/ckpt-10" in lines
    assert "assert_consumed: checkpoint and program do not match exactly" in lines
    assert "optimizer restored at step 100, learning rate 0.1" in lines
    assert "Shape: [5, 1]" in lines
    assert "Dtype: float32" in lines
    assert "ListWrapper([])" in lines


def test_the_three_newest_checkpoints_are_kept(ran):
    assert KEPT in ran[1]
    assert FILES in ran[1]


def test_keys_are_paths_of_attributes_and_slots_belong_to_their_parameter(ran):
    keys = [key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for key, _ in milepost.list_variables(ran[0] / "tf_ckpts")]
    assert [key for key in keys if key.startswith("net/l1/bias")] == [
        "net/l1/bias",
        "net/l1/bias/.OPTIMIZER_SLOT/optimizer/exp_avg",
        "net/l1/bias/.OPTIMIZER_SLOT/optimizer/exp_avg_sq",
        "net/l1/bias/.OPTIMIZER_SLOT/optimizer/step",
    ]
    assert "optimizer/param_groups/0/lr" in keys


def test_the_loss_goes_on_falling_where_training_resumed(ran):
    printed = losses(ran[1])
    assert list(printed) == list(range(10, 101, 10))
    assert printed[60] < printed[50]
    assert printed[100] < printed[10] / 10


def test_the_bias_and_the_late_weight_are_the_saved_ones(ran):
    bias, weight = (
        milepost.load_variable(ran[0] / "tf_ckpts", f"net/l1/{name}/.ATTRIBUTES/VARIABLE_VALUE")
        for name in ("bias", "weight")
    )
    before, restored, late_before, late_restored, inspected = vectors(ran[1])
    assert before == late_before == [0] * 5
    np.testing.assert_allclose(restored, bias, rtol=1e-6)
    np.testing.assert_allclose([late_restored, inspected], [weight[:, 0]] * 2, rtol=1e-6)


def test_models_are_restored_whole(ran):
    assert ran[1][-2:] == [
        "Net: 2 weights restored from ./easy_checkpoint",
        "Stack: 6 weights restored from ./stack_checkpoint",
    ]


def test_tensorflow_reads_it(ran):
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    prefix = tf.train.latest_checkpoint(str(ran[0] / "tf_ckpts"))
    assert prefix.endswith("ckpt-10")
    weight = tf.train.load_checkpoint(prefix).get_tensor(WEIGHT)
    np.testing.assert_array_equal(weight, milepost.load_variable(prefix, WEIGHT))
