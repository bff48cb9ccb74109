"""The guide in JAX prints the guide's lines, and what it wrote is TensorFlow's format."""

import numpy as np
import pytest

import milepost
from tests.examples.scripts import EXAMPLES, FILES, KEPT, losses, run, vectors

pytest.importorskip("jax")
pytest.importorskip("optax")
KERNEL = "net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide_jax")
    return directory, run(EXAMPLES / "guide_jax.py", directory)


def test_it_prints_the_guides_lines(ran):
    lines = ran[1]
    assert lines[0] == "Initializing from scratch."
    assert lines[1] == "Saved checkpoint for step 10: ./tf_ckpts/ckpt-1"
    assert "Restored from ./tf_ckpts/ckpt-5" in lines
    assert "Saved checkpoint for step 100: ./tf_ckpts/ckpt-10" in lines
    assert "Shape: [1, 5]" in lines
    assert "Dtype: float32" in lines
    assert "ListWrapper([])" in lines


def test_the_three_newest_checkpoints_are_kept(ran):
    assert KEPT in ran[1]
    assert FILES in ran[1]


def test_the_loss_goes_on_falling_where_training_resumed(ran):
    printed = losses(ran[1])
    assert list(printed) == list(range(10, 101, 10))
    assert printed[60] < printed[50]
    assert printed[100] < printed[10] / 10


def test_the_bias_and_the_late_kernel_are_the_saved_ones(ran):
    bias, kernel = (
        milepost.load_variable(ran[0] / "tf_ckpts", f"net/l1/{name}/.ATTRIBUTES/VARIABLE_VALUE")
        for name in ("bias", "kernel")
    )
    before, restored, late_before, late_restored, inspected = vectors(ran[1])
    assert before == late_before == [0] * 5
    np.testing.assert_allclose(restored, bias, rtol=1e-6)
    np.testing.assert_allclose([late_restored, inspected], [kernel[0]] * 2, rtol=1e-6)


def test_parameters_alone_are_restored_from_their_shapes(ran):
    assert ran[1][-1] == "2 arrays restored from ./easy_checkpoint"


def test_tensorflow_reads_it(ran):
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    prefix = tf.train.latest_checkpoint(str(ran[0] / "tf_ckpts"))
    assert prefix.endswith("ckpt-10")
    kernel = tf.train.load_checkpoint(prefix).get_tensor(KERNEL)
    np.testing.assert_array_equal(kernel, milepost.load_variable(prefix, KERNEL))
