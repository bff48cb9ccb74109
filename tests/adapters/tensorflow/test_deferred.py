"""Values of objects that do not exist yet when they are restored: they arrive when TensorFlow's own would."""

import copy
import pickle
import types

import numpy as np
import pytest

from milepost import Checkpoint, MismatchError
from tests.adapters.tensorflow.frameworks import CHECKPOINTS, keras, tf

writers = pytest.mark.parametrize("writer", CHECKPOINTS.values(), ids=CHECKPOINTS)
x = tf.constant(np.arange(12, dtype=np.float32).reshape(4, 3) / 12)


def untouched(obj):
    """Whether an object has no method of its own in the place of its class's."""
    return isinstance(obj._handle_deferred_dependencies, types.MethodType)


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of a module with a variable, a list, a dict and a module."""
    made = tf.Module()
    made.v = tf.Variable(3.0)
    made.members = [tf.Variable(4.0), tf.Variable(5.0)]
    made.named = {"a": tf.Variable(6.0)}
    made.inner = tf.Module()
    made.inner.v = tf.Variable(7.0)
    return Checkpoint(m=made).write(tmp_path / "ckpt")


@pytest.fixture
def live(saved):
    """An empty module, restored from it."""
    made = tf.Module()
    Checkpoint(m=made).read(saved).expect_partial()
    return made


def test_an_attribute_has_its_value_at_once(live):
    live.v = tf.Variable(0.0)
    assert live.v.numpy() == 3


def test_a_member_of_a_list_has_its_value_when_it_is_appended(live):
    live.members = []
    live.members.append(tf.Variable(0.0))
    assert live.members[0].numpy() == 4
    live.members.extend([tf.Variable(0.0)])
    assert live.members[1].numpy() == 5


def test_a_list_that_is_assigned_whole_has_its_values(live):
    live.members = [tf.Variable(0.0), tf.Variable(0.0)]
    assert [each.numpy() for each in live.members] == [4, 5]


def test_a_member_of_a_dict_has_its_value_when_it_is_set(live):
    live.named = {}
    live.named["a"] = tf.Variable(0.0)
    assert live.named["a"].numpy() == 6


def test_what_is_below_a_late_object_is_restored_with_it(live):
    inner = tf.Module()
    inner.v = tf.Variable(0.0)
    live.inner = inner
    assert inner.v.numpy() == 7


def test_objects_attached_to_a_late_object_wait_on(live):
    live.inner = tf.Module()
    live.inner.v = tf.Variable(0.0)
    assert live.inner.v.numpy() == 7


def test_objects_of_tensorflow_are_attached_late_to_those_of_milepost(saved):
    root = Checkpoint()
    status = root.read(saved)
    module = tf.Module()
    module.v = tf.Variable(0.0)
    root.m = module
    assert module.v.numpy() == 3
    status.expect_partial()


def test_the_newest_of_two_restores_wins(tmp_path, live):
    newer = tf.Module()
    newer.v = tf.Variable(30.0)
    Checkpoint(m=live).read(Checkpoint(m=newer).write(tmp_path / "newer")).expect_partial()
    live.v = tf.Variable(0.0)
    assert live.v.numpy() == 30


def test_an_object_is_left_as_it_was_once_nothing_waits(live):
    assert not untouched(live)
    live.v = tf.Variable(0.0)
    live.members = [tf.Variable(0.0), tf.Variable(0.0)]
    live.named = {"a": tf.Variable(0.0)}
    assert not untouched(live)
    live.inner = tf.Module()
    assert untouched(live)
    assert untouched(live.members)
    assert untouched(live.named)
    live.inner.v = tf.Variable(0.0)
    assert untouched(live.inner)


@pytest.mark.parametrize(
    "attach",
    [
        lambda live: setattr(live, "v", tf.Variable([0.0, 0.0])),
        lambda live: setattr(live, "members", [tf.Variable([0.0, 0.0])]),
        lambda live: setattr(live, "named", {"a": tf.Variable([0.0, 0.0])}),
    ],
    ids=["attribute", "list", "dict"],
)
def test_a_value_that_does_not_fit_raises(live, attach):
    with pytest.raises(MismatchError, match="wrong shape"):
        attach(live)


def test_appending_what_does_not_fit_raises_and_the_value_goes_on_waiting(live):
    """TensorFlow's lists swallow the error, and the variable keeps its initial value."""
    live.members = []
    with pytest.raises(MismatchError) as caught:
        live.members.append(tf.Variable([0.0, 0.0]))
    assert caught.value.key == "m/members/0/.ATTRIBUTES/VARIABLE_VALUE"
    assert not live.members
    live.members.append(tf.Variable(0.0))
    assert live.members[0].numpy() == 4


def test_setting_in_a_dict_what_does_not_fit_raises(live):
    live.named = {}
    with pytest.raises(MismatchError):
        live.named["a"] = tf.Variable(["text"])
    live.named["a"] = tf.Variable(0.0)
    assert live.named["a"].numpy() == 6


def test_an_attribute_that_did_not_fit_is_not_tracked(tmp_path, live):
    with pytest.raises(MismatchError):
        live.v = tf.Variable([0.0, 0.0])
    live.v = tf.Variable(0.0)
    assert live.v.numpy() == 3
    assert live._trackable_children("checkpoint") == {"v": live.v}


def test_a_variable_made_while_a_function_is_traced_has_its_value(live):
    @tf.function
    def traced():
        if not hasattr(live, "v"):
            live.v = tf.Variable(0.0)
        return live.v + 1

    assert traced().numpy() == 4
    live.v.assign_add(1.0)
    assert traced().numpy() == 5


def test_a_copy_gets_no_values_that_wait_for_the_original(live):
    twin = copy.deepcopy(live)
    twin.v = tf.Variable(0.0)
    assert twin.v.numpy() == 0
    live.v = tf.Variable(0.0)
    assert live.v.numpy() == 3


def test_an_object_that_values_wait_on_can_be_pickled(live):
    live._name_scope = None  # TensorFlow's own scope cannot be
    twin = pickle.loads(pickle.dumps(live))
    twin.v = tf.Variable(0.0)
    assert twin.v.numpy() == 0


def test_a_save_before_all_objects_exist_loses_nothing(tmp_path, saved):
    waiting = tf.Module()
    Checkpoint(m=waiting).read(saved)
    path = Checkpoint(m=waiting).write(tmp_path / "again")
    fresh = tf.Module()
    fresh.members = [tf.Variable(0.0), tf.Variable(0.0)]
    tf.train.Checkpoint(m=fresh).read(path).expect_partial()
    assert [each.numpy() for each in fresh.members] == [4, 5]


class Net(keras.Model):
    """A subclassed model without ``build``."""

    def __init__(self, units=2):
        super().__init__()
        self.first = keras.layers.Dense(4)
        self.rest = [keras.layers.Dense(3), {"last": keras.layers.Dense(units)}]
        self.norm = keras.layers.BatchNormalization()

    def call(self, inputs, training=False):
        return self.rest[1]["last"](self.rest[0](self.norm(self.first(inputs), training=training)))


class LateNet(keras.Model):
    """Makes a layer in ``build`` and another in ``call``."""

    def __init__(self):
        super().__init__()
        self.other = None

    def build(self, shape):
        self.inner = keras.layers.Dense(3)
        self.scale = self.add_weight(name="scale", shape=[3], initializer="ones")
        self.built = True

    def call(self, inputs):
        if self.other is None:
            self.other = keras.layers.Dense(2)
        return self.other(self.inner(inputs) * self.scale)


def sequential():
    return keras.Sequential([keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(2)])


def functional():
    inputs = keras.Input([3])
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dense(3)(inputs)))


models = pytest.mark.parametrize("make", [Net, LateNet, sequential, functional])


def trained(make):
    model = make()
    model(x)
    for number, variable in enumerate(model.variables):
        variable.assign(tf.cast(tf.reshape(tf.range(tf.size(variable)), variable.shape), variable.dtype) / 7 + number)
    return model


@writers
@models
def test_the_first_output_of_a_model_is_the_saved_one(tmp_path, writer, make):
    model = trained(make)
    path = writer(net=model).write(str(tmp_path / "ckpt"))
    live = make()
    status = Checkpoint(net=live).read(path)
    np.testing.assert_array_equal(live(x), model(x))
    status.assert_consumed()


class Reading(keras.layers.Layer):
    """Makes a layer in ``build``, and cannot be called with a symbolic input."""

    def build(self, shape):
        self.inner = keras.layers.Dense(3)
        self.built = True

    def call(self, inputs):
        return self.inner(tf.convert_to_tensor(inputs.numpy()))


def add_layers(model):
    for layer in (keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(2)):
        model.add(layer)


def add_input_and_layers(model):
    model.add(keras.layers.InputLayer([3]))
    add_layers(model)


def add_built_layers(model):
    for size, layer in ((3, keras.layers.Dense(4)), (4, keras.layers.Dropout(0.5)), (4, keras.layers.Dense(2))):
        if isinstance(layer, keras.layers.Dense):
            layer.build([None, size])
        model.add(layer)


def add_layers_to_a_built_model(model):
    model.add(keras.layers.Dense(4))
    model.build([None, 3])
    model.add(keras.layers.Dropout(0.5))
    model.add(keras.layers.Dense(2))


def add_a_model(model):
    inner = keras.Sequential()
    add_layers(inner)
    model.add(inner)


def add_layers_that_run_eagerly(model):
    model.add(keras.layers.Dropout(0.5))
    model.add(Reading())
    model.add(keras.layers.Dense(2))


@pytest.mark.parametrize(
    "add",
    [
        add_layers,
        add_input_and_layers,
        add_built_layers,
        add_layers_to_a_built_model,
        add_a_model,
        add_layers_that_run_eagerly,
    ],
)
@writers
def test_layers_that_are_added_after_the_restore_have_their_values_in_the_first_call(tmp_path, writer, add):
    def make():
        add(model := keras.Sequential())
        return model

    model = trained(make)
    path = writer(net=model).write(str(tmp_path / "ckpt"))
    live = keras.Sequential()
    status = Checkpoint(net=live).read(path)
    add(live)
    np.testing.assert_array_equal(live(x), model(x))
    status.assert_consumed()


@models
def test_the_first_output_in_a_function_is_the_saved_one(tmp_path, make):
    model = trained(make)
    path = Checkpoint(net=model).write(tmp_path / "ckpt")
    live = make()
    status = Checkpoint(net=live).read(path)
    np.testing.assert_array_equal(tf.function(live)(x), tf.function(model)(x))
    status.assert_consumed()


@models
def test_fit_begins_with_the_saved_values(tmp_path, make):
    model = trained(make)
    path = Checkpoint(net=model).write(tmp_path / "ckpt")
    live = make()
    live.compile(keras.optimizers.SGD(0.0), "mse")
    Checkpoint(net=live).read(path).expect_partial()
    loss = live.fit(x, tf.ones([4, 2]), shuffle=False, verbose=0).history["loss"][0]
    model.compile(keras.optimizers.SGD(0.0), "mse")
    assert loss == model.fit(x, tf.ones([4, 2]), shuffle=False, verbose=0).history["loss"][0]


def test_under_mixed_precision_the_first_output_is_the_saved_one(tmp_path):
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = trained(Net)
        path = Checkpoint(net=model).write(tmp_path / "ckpt")
        live = Net()
        status = Checkpoint(net=live).read(path)
        np.testing.assert_array_equal(tf.cast(live(x), tf.float32), tf.cast(model(x), tf.float32))
        status.assert_consumed()
    finally:
        keras.mixed_precision.set_global_policy(before)


@pytest.mark.parametrize(
    "call",
    [lambda net: net(x), lambda net: tf.function(net)(x), lambda net: net.predict(x, verbose=0)],
    ids=["eagerly", "function", "predict"],
)
def test_a_layer_that_does_not_fit_raises_in_the_first_call(tmp_path, call):
    path = Checkpoint(net=trained(Net)).write(tmp_path / "ckpt")
    live = Net(units=5)
    Checkpoint(net=live).read(path).expect_partial()
    with pytest.raises(MismatchError, match="net/rest/1/last/kernel"):
        call(live)
