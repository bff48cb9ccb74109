"""What holds for the guide's script in every framework."""

import numpy as np
import pytest

import milepost
from tests.examples.scripts import FILES, KEPT, losses, vectors


class Guide:
    """Tests of one script; a subclass says what its framework calls the weights, and a fixture ``ran`` runs it.

    Attributes:
        weight: Name of the layer's matrix.
        shape: Its shape, as the script prints it.
    """

    weight = "kernel"
    shape = "[1, 5]"

    def key(self, name):
        return f"net/l1/{name}/.ATTRIBUTES/VARIABLE_VALUE"

    def test_it_prints_the_guides_lines(self, ran):
        lines = ran[1]
        assert lines[0] == "Initializing from scratch."
        assert lines[1] == "Saved checkpoint for step 10: ./tf_ckpts/ckpt-1"
        assert "Restored from ./tf_ckpts/ckpt-5" in lines
        assert "Saved checkpoint for step 100: ./tf_ckpts/ckpt-10" in lines
        assert f"Shape: {self.shape}" in lines
        assert "Dtype: float32" in lines
        assert "ListWrapper([])" in lines

    def test_the_three_newest_checkpoints_are_kept(self, ran):
        assert KEPT in ran[1]
        assert FILES in ran[1]

    def test_the_loss_goes_on_falling_where_training_resumed(self, ran):
        printed = losses(ran[1])
        assert list(printed) == list(range(10, 101, 10))
        assert printed[60] < printed[50]
        assert printed[100] < printed[10] / 10

    def test_the_bias_and_the_late_weight_are_the_saved_ones(self, ran):
        bias, weight = (
            milepost.load_variable(ran[0] / "tf_ckpts", self.key(name)).ravel() for name in ("bias", self.weight)
        )
        before, restored, late_before, late_restored, inspected = vectors(ran[1])
        assert before == late_before == [0] * 5
        np.testing.assert_allclose(restored, bias, rtol=1e-6)
        np.testing.assert_allclose([late_restored, inspected], [weight] * 2, rtol=1e-6)

    def test_tensorflow_reads_it(self, ran):
        tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
        prefix = tf.train.latest_checkpoint(str(ran[0] / "tf_ckpts"))
        assert prefix.endswith("ckpt-10")
        weight = tf.train.load_checkpoint(prefix).get_tensor(self.key(self.weight))
        np.testing.assert_array_equal(weight, milepost.load_variable(prefix, self.key(self.weight)))
