"""State of users' own classes of Keras 3, which only their own methods of saving know, or their own `variables`."""

import io
import json
import os
from typing import Any

import numpy as np
import pytest

import milepost
from milepost.graph.adapter import adapter_of
from tests.adapters.keras.models import INPUTS, L, keras

layers: Any = L


class Counting(keras.layers.Layer):
    """Holds state where no tracking sees it, and gives it to Keras' saving."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)
        self.seen = np.zeros(2)
        self.words = []

    def build(self, shape):
        self.dense.build(shape)
        self.kernel = self.add_weight(shape=(2,), initializer="zeros", name="own")

    def call(self, x):
        return self.dense(x) + self.kernel

    def save_own_variables(self, store):
        store["seen"] = self.seen
        store["own"] = self.kernel

    def load_own_variables(self, store):
        self.seen = np.array(store["seen"])
        self.kernel.assign(store["own"])

    def save_assets(self, inner_path):
        with open(os.path.join(inner_path, "words.txt"), "w") as file:
            file.write(" ".join(self.words))

    def load_assets(self, inner_path):
        with open(os.path.join(inner_path, "words.txt")) as file:
            self.words = file.read().split()


def trained():
    layer = Counting()
    layer(INPUTS)
    layer.seen, layer.words = np.array([3.0, 4.0]), ["a", "b"]
    layer.kernel.assign([5.0, 6.0])
    return layer


def values(layer):
    return layer.seen.tolist(), layer.words, np.asarray(keras.ops.convert_to_numpy(layer.kernel)).tolist()


@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
def test_what_own_methods_save_is_restored(built, tmp_path):
    layer = trained()
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
    fresh = Counting()
    if built:
        fresh(INPUTS)
    status = milepost.Checkpoint(layer=fresh).read(path)
    fresh(INPUTS)
    assert values(fresh) == values(layer)
    status.assert_consumed().assert_existing_objects_matched()


def test_what_waits_until_the_layer_is_built_is_saved_again(tmp_path):
    layer = trained()
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "1")
    carrier = Counting()
    checkpoint = milepost.Checkpoint(layer=carrier)
    checkpoint.read(path)
    again = checkpoint.write(tmp_path / "2")
    fresh = Counting()
    status = milepost.Checkpoint(layer=fresh).read(again)
    fresh(INPUTS)
    assert values(fresh) == values(layer)
    status.assert_consumed()


def test_element_types_that_numpy_does_not_have_come_back(tmp_path):
    class Half(layers.Layer):
        state = None

        def save_own_variables(self, store):
            store["state"] = self.state

        def load_own_variables(self, store):
            self.state = store["state"]

    layer, fresh = Half(), Half()
    layer.state = keras.ops.convert_to_tensor([1.5, 2.5], "bfloat16")
    layer.built = fresh.built = True
    path = milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
    milepost.Checkpoint(layer=fresh).read(path)
    assert str(fresh.state.dtype) == "bfloat16"
    assert fresh.state.tolist() == [1.5, 2.5]


def test_a_store_that_holds_no_arrays_is_refused(tmp_path):
    class Odd(layers.Layer):
        def save_own_variables(self, store):
            store["odd"] = object()

    with pytest.raises(milepost.UntrackableError, match="'odd': a object, from a Odd"):
        milepost.Checkpoint(layer=Odd()).write(tmp_path / "ckpt")


def archive(names, compressed=False):
    file = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(file, **{"names": np.array(json.dumps(names)), "0": np.zeros(1, np.uint8)})
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04 no archive",
        b"",
        archive([["asset", "../outside", "uint8"]]),
        archive([["asset", "/outside", "uint8"]]),
        archive([["variable", "seen", "float64"]], compressed=True),
        archive([["variable", "seen", "no type"]]),
        archive([["variable", "seen"]]),
    ],
)
def test_what_no_object_has_saved_is_refused(data):
    layer = trained()
    adapter = adapter_of(layer)
    with pytest.raises(milepost.CorruptCheckpointError, match="not the state of a Keras object"):
        adapter.assign(layer, {"own_state": np.array(data, object)})
    assert values(layer) == values(trained())


def test_a_variable_that_only_the_layer_itself_knows_is_refused(tmp_path):
    class Hiding(layers.Layer):
        def __init__(self):
            super().__init__()
            self.held = [].append

        def hide(self, variable):
            vars(self)["held"] = lambda: variable

        @property
        def variables(self):
            return [*super().variables, self.held()]

    layer = Hiding()
    layer.hide(keras.Variable(1.0, name="hidden"))
    checkpoint = milepost.Checkpoint(layer=layer)
    with pytest.raises(milepost.UntrackableError, match="hold it in an attribute") as raised:
        checkpoint.write(tmp_path / "ckpt")
    assert raised.value.key == "layer/hidden"
    options = milepost.CheckpointOptions(allow_unsaved=["layer/hidden"])
    milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt", options=options)


def test_a_built_layer_that_cannot_tell_its_variables_is_refused(tmp_path):
    class Failing(layers.Layer):
        @property
        def variables(self):
            raise RuntimeError("the variables are not to be had")

    layer = Failing()
    milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
    layer.built = True
    with pytest.raises(milepost.UntrackableError, match="the variables are not to be had") as raised:
        milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
    assert raised.value.key == "layer"


def test_layers_in_a_plain_set_are_named(tmp_path):
    layer = layers.Layer()
    vars(layer)["held"] = {layers.Dense(1)}
    with pytest.warns(milepost.UntrackedWarning, match="layer/held"):
        milepost.Checkpoint(layer=layer).write(tmp_path / "ckpt")
