"""Slot variables, exchanged with a TensorFlow optimizer that declares them."""

import os

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, Module, SlotOwner, Variable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


class Adam(SlotOwner):
    """Has the children of TensorFlow's AdamOptimizer."""

    def __init__(self):
        self.beta1_power = Variable(np.float32(0))
        self.beta2_power = Variable(np.float32(0))


def trained_by_tensorflow():
    net = tf.Module()
    net.w, net.b = tf.Variable([1.0, 2.0]), tf.Variable([3.0])
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(net.w**2) + tf.reduce_sum(net.b**2)
        optimizer.apply_gradients(zip(tape.gradient(loss, [net.w, net.b]), [net.w, net.b], strict=True))
    return net, optimizer


def blank():
    net = Module()
    net.w, net.b = Variable([0.0, 0.0]), Variable([0.0])
    return net, Adam()


def test_slots_that_tensorflow_saved_are_made_and_restored(tmp_path):
    their_net, their_optimizer = trained_by_tensorflow()
    path = tf.train.Checkpoint(net=their_net, optimizer=their_optimizer).save(str(tmp_path / "ckpt"))
    net, optimizer = blank()
    Checkpoint(net=net, optimizer=optimizer).restore(path).assert_consumed()
    for name in ("m", "v"):
        for ours, theirs in ((net.w, their_net.w), (net.b, their_net.b)):
            np.testing.assert_array_equal(optimizer.get_slot(ours, name), their_optimizer.get_slot(theirs, name))


def test_slots_that_milepost_saved_restore_in_tensorflow(tmp_path):
    net, optimizer = blank()
    net.w.assign([5.0, 6.0])
    for name in ("m", "v"):
        for variable in (net.w, net.b):
            optimizer.add_slot(variable, name, np.full(variable.shape, 7, np.float32))
    path = Checkpoint(net=net, optimizer=optimizer).save(tmp_path / "ckpt")
    their_net, their_optimizer = trained_by_tensorflow()
    status = tf.train.Checkpoint(net=their_net, optimizer=their_optimizer).restore(path)
    status.assert_consumed()
    assert their_optimizer.get_slot(their_net.w, "m").numpy().tolist() == [7, 7]
    assert their_net.w.numpy().tolist() == [5, 6]


def test_keys_and_order_of_slots_are_tensorflows(tmp_path):
    their_net, their_optimizer = trained_by_tensorflow()
    theirs = tf.train.Checkpoint(net=their_net, optimizer=their_optimizer).save(str(tmp_path / "theirs"))
    net, optimizer = blank()
    live = Checkpoint(net=net, optimizer=optimizer)
    live.restore(theirs)
    ours = live.write(tmp_path / "ours")
    assert milepost.list_variables(ours) == milepost.list_variables(theirs)
    views = [milepost.CheckpointView(path).graph for path in (ours, theirs)]
    assert [node.slots for node in views[0].nodes] == [node.slots for node in views[1].nodes]
    assert [node.children for node in views[0].nodes] == [node.children for node in views[1].nodes]


def test_custom_values_with_awkward_names_are_read_by_tensorflow(tmp_path):
    """Unlike those that TensorFlow writes itself, which it cannot find again."""

    class Ours(milepost.TensorState):
        def serialize(self):
            return {"a/b": np.float32(1), "c.d": np.float32(2)}

        def deserialize(self, tensors):
            pass

    class Theirs(tf.Module):
        def _serialize_to_tensors(self):
            return {"a/b": tf.constant(0.0), "c.d": tf.constant(0.0)}

        def _restore_from_tensors(self, tensors):
            self.tensors = {name: float(value) for name, value in tensors.items()}

    path = Checkpoint(s=Ours()).write(tmp_path / "ckpt")
    theirs = Theirs()
    tf.train.Checkpoint(s=theirs).read(path).assert_consumed()
    assert theirs.tensors == {"a/b": 1, "c.d": 2}


def test_custom_values_with_awkward_names_that_tensorflow_wrote_are_read(tmp_path):
    class Theirs(tf.Module):
        def _serialize_to_tensors(self):
            return {"a/b": tf.constant(1.0), "c.d": tf.constant(2.0)}

        def _restore_from_tensors(self, tensors):
            pass

    class Ours(milepost.TensorState):
        tensors = None

        def serialize(self):
            return {}

        def deserialize(self, tensors):
            self.tensors = {name: float(value) for name, value in tensors.items()}

    path = tf.train.Checkpoint(s=Theirs()).write(str(tmp_path / "ckpt"))
    ours = Ours()
    Checkpoint(s=ours).read(path).assert_consumed()
    assert ours.tensors == {"a/b": 1, "c.d": 2}


def test_python_state_is_exchanged(tmp_path):
    class Theirs(tf.train.experimental.PythonState):
        text = "theirs"

        def serialize(self):
            return self.text

        def deserialize(self, string_value):
            self.text = string_value

    class Ours(milepost.PythonState):
        text = "ours"

        def serialize(self):
            return self.text

        def deserialize(self, string_value):
            self.text = string_value

    theirs, ours = Theirs(), Ours()
    tf.train.Checkpoint(s=theirs).read(Checkpoint(s=ours).write(tmp_path / "ours")).assert_consumed()
    assert theirs.text in ("ours", b"ours")
    theirs.text = "changed"
    Checkpoint(s=ours).read(tf.train.Checkpoint(s=theirs).write(str(tmp_path / "theirs"))).assert_consumed()
    assert ours.text == "changed"


def test_a_saved_model_directory_is_restored(tmp_path):
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    tf.saved_model.save(module, str(tmp_path / "model"))
    live = Module()
    live.v = Variable([0.0, 0.0])
    Checkpoint(live).restore(tmp_path / "model").expect_partial()
    assert live.v.tolist() == [1, 2]


def test_a_table_that_tensorflow_saved_is_read_as_tensors(tmp_path):
    """The graph lists its two tensors as one, under a name that the files do not have."""
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    table.insert(tf.constant(["a"]), tf.constant([1], tf.int64))
    path = tf.train.Checkpoint(t=table, g=tf.random.Generator.from_seed(1)).write(str(tmp_path / "ckpt"))

    class Table(milepost.TensorState):
        tensors = None

        def serialize(self):
            return {}

        def deserialize(self, tensors):
            self.tensors = tensors

    ours = Table()
    status = Checkpoint(t=ours).read(path).expect_partial()
    assert {name: tensor.tolist() for name, tensor in ours.tensors.items()} == {
        "table-keys": [b"a"],
        "table-values": [1],
    }
    assert [entry.key for entry in status.report().deferred] == ["g/_state_var/.ATTRIBUTES/VARIABLE_VALUE"]
