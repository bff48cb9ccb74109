"""Variables of TensorFlow, saved and restored, and exchanged with `tf.train.Checkpoint`."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, MismatchError
from tests.adapters.tensorflow.frameworks import exchanged, keras, tf

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool", "complex64", "string")


def variable(dtype, values):
    if dtype == "string":
        return tf.Variable([str(value) for value in values])
    return tf.Variable(tf.cast(tf.constant(values), dtype))


@exchanged
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_exchanged(tmp_path, writer, reader, dtype):
    path = writer(v=variable(dtype, [0, 1, 2])).write(str(tmp_path / "ckpt"))
    live = variable(dtype, [2, 2, 2])
    reader(v=live).read(path).assert_consumed()
    assert live.numpy().tolist() == variable(dtype, [0, 1, 2]).numpy().tolist()


@exchanged
def test_scalars_and_empty_variables_are_exchanged(tmp_path, writer, reader):
    path = writer(s=tf.Variable("text"), e=tf.Variable(tf.zeros([0, 3]))).write(str(tmp_path / "ckpt"))
    scalar, empty = tf.Variable(""), tf.Variable(tf.ones([0, 3]))
    reader(s=scalar, e=empty).read(path).assert_consumed()
    assert scalar.numpy() == b"text"


@exchanged
def test_a_variable_of_unknown_shape_takes_any(tmp_path, writer, reader):
    path = writer(v=tf.Variable(tf.ones([3, 2]))).write(str(tmp_path / "ckpt"))
    live = tf.Variable(tf.zeros([1, 2]), shape=[None, 2])
    reader(v=live).read(path).assert_consumed()
    assert live.numpy().shape == (3, 2)


def test_a_variable_of_unknown_rank_takes_the_rank_it_has(tmp_path):
    path = Checkpoint(v=tf.Variable(tf.ones([3, 2]))).write(tmp_path / "ckpt")
    live = tf.Variable(tf.zeros([1, 1]), shape=tf.TensorShape(None))
    Checkpoint(v=live).read(path).assert_consumed()
    assert live.numpy().shape == (3, 2)


def test_a_value_that_does_not_fit_changes_nothing(tmp_path):
    path = Checkpoint(a=tf.Variable(1.0), b=tf.Variable([1.0, 2.0])).write(tmp_path / "ckpt")
    a, b = tf.Variable(0.0), tf.Variable([0.0, 0.0, 0.0])
    with pytest.raises(MismatchError) as caught:
        Checkpoint(a=a, b=b).read(path)
    assert caught.value.key == "b/.ATTRIBUTES/VARIABLE_VALUE"
    assert a.numpy() == 0


def test_the_value_that_is_saved_is_read_without_a_copy():
    value = milepost.graph.adapter.adapter_of(live := tf.Variable(tf.zeros([1000]))).values(live)[0]
    first, second = value.read(), value.read()
    assert np.shares_memory(first, second)


def test_a_value_that_was_read_does_not_follow_the_variable():
    value = milepost.graph.adapter.adapter_of(live := tf.Variable(tf.zeros([1000]))).values(live)[0]
    array = value.read()
    live.assign_add(tf.ones([1000]))
    assert not array.any()


def test_an_asynchronous_save_holds_the_values_of_its_time(tmp_path):
    live = tf.Variable(tf.zeros([1000]))
    checkpoint = Checkpoint(v=live)
    path = checkpoint.write(tmp_path / "ckpt", milepost.CheckpointOptions(enable_async=True))
    live.assign_add(tf.ones([1000]))
    checkpoint.sync()
    assert not milepost.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE").any()


def test_names_of_variables_are_written_as_tensorflow_writes_them(tmp_path):
    live = {"v": tf.Variable(1.0, name="scope/kernel"), "m": tf.Variable(1.0)}
    densely = milepost.CheckpointOptions(data_alignment=1)
    ours = Checkpoint(**live).write(tmp_path / "ours", densely)
    theirs = tf.train.Checkpoint(**live).write(str(tmp_path / "theirs"))
    assert milepost.CheckpointView(ours).graph == milepost.CheckpointView(theirs).graph


@exchanged
def test_a_variable_in_parts_is_exchanged_with_one_in_other_parts(tmp_path, writer, reader):
    sharded = tf.__internal__.distribute.ShardedVariable
    saved = sharded([tf.Variable([[1.0], [2.0]]), tf.Variable([[3.0]])])
    path = writer(v=saved).write(str(tmp_path / "ckpt"))
    whole = tf.Variable(tf.zeros([3, 1]))
    parts = [tf.Variable([[0.0]]), tf.Variable([[0.0], [0.0]])]
    reader(v=whole).read(path).assert_consumed()
    reader(v=sharded(parts)).read(path).assert_consumed()
    assert whole.numpy().ravel().tolist() == [1, 2, 3]
    assert [part.numpy().ravel().tolist() for part in parts] == [[1], [2, 3]]


@exchanged
def test_variables_that_cast_themselves_are_saved_as_what_they_are(tmp_path, writer, reader):
    def dense(value):
        layer = keras.layers.Dense(2, dtype="mixed_float16", kernel_initializer=keras.initializers.Constant(value))
        layer.build((None, 3))
        return layer

    path = writer(layer=dense(1.5)).write(str(tmp_path / "ckpt"))
    assert dict(milepost.list_variables(path))["layer/kernel/.ATTRIBUTES/VARIABLE_VALUE"] == [3, 2]
    live = dense(0.0)
    reader(layer=live).read(path).assert_consumed()
    assert live.kernel.numpy().dtype == np.float32
    assert live.kernel.numpy()[0, 0] == 1.5


def test_milepost_variables_and_tensorflow_variables_take_each_others_values(tmp_path):
    path = Checkpoint(v=milepost.Variable([1.0, 2.0])).write(tmp_path / "ckpt")
    live = tf.Variable([0.0, 0.0])
    Checkpoint(v=live).read(path).assert_consumed()
    assert live.numpy().tolist() == [1, 2]
    ours = milepost.Variable([0.0, 0.0])
    Checkpoint(v=ours).read(Checkpoint(v=live).write(tmp_path / "back")).assert_consumed()
    assert ours.tolist() == [1, 2]


def test_a_restore_in_the_middle_of_tracing_is_refused(tmp_path):
    path = Checkpoint(v=tf.Variable(5.0)).write(tmp_path / "ckpt")
    live = tf.Variable(0.0)

    @tf.function
    def traced():
        Checkpoint(v=live).read(path)
        return live + 1

    with pytest.raises(milepost.UnsupportedError, match=r"inside a tf\.function"):
        traced()
    assert live.numpy() == 0


def test_a_variable_is_saved_in_the_middle_of_tracing(tmp_path):
    live = tf.Variable(5.0)

    @tf.function
    def traced():
        Checkpoint(v=live).write(tmp_path / "ckpt")

    traced()
    assert milepost.load_variable(tmp_path / "ckpt", "v/.ATTRIBUTES/VARIABLE_VALUE") == 5


@pytest.mark.parametrize("value", [5.0, [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]])
def test_a_variable_of_unknown_rank_takes_any_shape(tmp_path, value):
    saved = tf.Variable([1.0], shape=tf.TensorShape(None))
    saved.assign(value)
    live = tf.Variable([1.0], shape=tf.TensorShape(None))
    path = milepost.Checkpoint(v=saved).write(tmp_path / "ckpt")
    milepost.Checkpoint(v=live).read(path).assert_consumed()
    assert live.numpy().tolist() == value


def test_a_variable_of_unknown_rank_is_reported_with_any_shape(tmp_path):
    path = milepost.Checkpoint().write(tmp_path / "ckpt")
    live = tf.Variable([1.0], shape=tf.TensorShape(None))
    report = milepost.Checkpoint(v=live).read(path).expect_partial().report()
    assert [entry.live for entry in report.missing] == ["float32[...]"]


@pytest.mark.parametrize(
    "make", [lambda: tf.constant([1.0]), lambda: tf.sparse.eye(2), lambda: tf.ragged.constant([[1], []])]
)
def test_a_tensor_is_refused_with_the_advice_to_hold_a_variable(make):
    with pytest.raises(milepost.UntrackableError) as caught:
        Checkpoint(v=make())
    assert caught.value.remedy.startswith("hold its values in a tf.Variable")
