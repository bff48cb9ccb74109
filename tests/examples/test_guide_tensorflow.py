"""The guide's own cells resume where they stopped, under both generations of Keras."""

import numpy as np
import pytest

import milepost
from tests.examples.scripts import EXAMPLES, FILES, KEPT, installed, losses, run, vectors

if not installed("tensorflow"):
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

SCRIPT = EXAMPLES / "guide_tensorflow.py"
KERAS_2 = "1"
KERAS_3 = "0"


def _skip_without(legacy):
    if legacy == KERAS_2 and not installed("tf_keras"):
        pytest.skip("tf_keras is not installed")


@pytest.fixture(scope="module", params=[KERAS_3, KERAS_2], ids=["tf.keras", "tf_keras"])
def ran(request, tmp_path_factory):
    _skip_without(request.param)
    directory = tmp_path_factory.mktemp("guide")
    environment = {"TF_USE_LEGACY_KERAS": request.param, "KERAS_BACKEND": "tensorflow"}
    return directory, run(SCRIPT, directory, "tensorflow", **environment)


def test_it_prints_the_guides_lines(ran):
    lines = ran[1]
    assert lines[0] == "Initializing from scratch."
    assert lines[1] == "Saved checkpoint for step 10: ./tf_ckpts/ckpt-1"
    assert "Restored from ./tf_ckpts/ckpt-5" in lines
    assert "Saved checkpoint for step 100: ./tf_ckpts/ckpt-10" in lines
    assert "Shape: [1, 5]" in lines
    assert "Dtype: float32" in lines
    assert lines[-1] == "ListWrapper([])"


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
    *cells, inspected = vectors(ran[1])
    for before, restored, late_before, late_restored in (cells[:4], cells[4:]):
        assert before == late_before == [0] * 5
        np.testing.assert_allclose(restored, bias, rtol=1e-6)
        np.testing.assert_allclose(late_restored, kernel[0], rtol=1e-6)
    np.testing.assert_allclose(inspected, kernel[0], rtol=1e-6)


def test_both_ways_of_inspection_show_the_guides_keys(ran):
    listed, keys = (line for line in ran[1] if "_CHECKPOINTABLE_OBJECT_GRAPH" in line)
    for key in ("iterator/.ATTRIBUTES/ITERATOR_STATE", "net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE", "save_counter/"):
        assert key in listed
        assert key in keys


def test_nothing_but_tf_train_was_replaced(tmp_path):
    """With TensorFlow's own names put back, the same script runs where the guide still works: in Keras 2."""
    _skip_without(KERAS_2)
    text = SCRIPT.read_text().replace("import milepost\n", "")
    text = text.replace("milepost.save_weights(net, 'easy_checkpoint')", "net.save_weights('easy_checkpoint')")
    original = tmp_path / "original.py"
    original.write_text(text.replace("milepost.", "tf.train."))
    lines = run(original, tmp_path / "written", "tensorflow", TF_USE_LEGACY_KERAS=KERAS_2, KERAS_BACKEND="tensorflow")
    assert KEPT in lines
    assert lines[-1] == "ListWrapper([])"
