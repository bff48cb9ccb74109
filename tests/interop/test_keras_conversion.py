"""`milepost.convert(model=)`: Keras loads the file into the model, whatever the names in the checkpoint are."""

import numpy as np
import pytest

import milepost

keras = pytest.importorskip("keras")


def built(seed=0):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse")
    return model


def arrays(model):
    return [np.asarray(each) for each in model.variables]


@pytest.fixture
def trained(tmp_path):
    model = built()
    model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    return model, milepost.Checkpoint(model=model, step=milepost.Variable(3)).save(tmp_path / "ckpt")


def test_keras_loads_the_weights(tmp_path, trained):
    model, path = trained
    live, other = built(1), built(2)
    before = arrays(live)
    milepost.convert(path, tmp_path / "a.weights.h5", model={"model": live}, only="model")
    for found, expected in zip(arrays(live), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    other.load_weights(tmp_path / "a.weights.h5")
    for found, expected in zip(arrays(other), arrays(model), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_model_alone(tmp_path, trained):
    model, _ = trained
    path = milepost.Checkpoint(model).write(tmp_path / "alone")
    other = built(2)
    milepost.convert(path, tmp_path / "a.weights.h5", model=built(1))
    other.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(np.asarray(other.variables[0]), np.asarray(model.variables[0]))


def test_a_model_that_does_not_fit_is_named(tmp_path, trained):
    _, path = trained
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
    with pytest.raises(milepost.MismatchError):
        milepost.convert(path, tmp_path / "a.weights.h5", model={"model": other})
    assert not (tmp_path / "a.weights.h5").exists()


def test_other_formats_take_no_model(tmp_path, trained):
    _, path = trained
    with pytest.raises(milepost.UnsupportedError) as caught:
        milepost.convert(path, tmp_path / "a.safetensors", model=built(1))
    assert caught.value.key == "model"
