"""``only`` and ``ignore`` for files of Keras 3, whose names are not those of the live objects: both mean the same."""

import numpy as np
import pytest

import milepost

keras = pytest.importorskip("keras")
pytest.importorskip("h5py")


def made(value):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    for each in model.weights:
        each.assign(np.full(each.shape, value))
    return model


@pytest.mark.parametrize("root", ["", "model/"])
@pytest.mark.parametrize(
    ("selection", "restored"),
    [
        ({"ignore": "layers/dense"}, "0011"),
        ({"ignore": "layer_with_weights-0"}, "0011"),
        ({"ignore": "layers/dense/vars/0"}, "0111"),
        ({"ignore": "layer_with_weights-0/kernel"}, "0111"),
        ({"only": "layers/dense_1"}, "0011"),
        ({"only": "layer_with_weights-1"}, "0011"),
        ({"only": ["layers/dense_1/vars/0", "layer_with_weights-0/bias"]}, "0110"),
        ({"ignore": "*bias"}, "1010"),
    ],
)
def test_names_of_the_file_and_of_live_objects_mean_the_same(tmp_path, root, selection, restored):
    made(1).save_weights(tmp_path / "m.weights.h5")
    live = made(0)
    ((argument, names),) = selection.items()
    names = [names] if isinstance(names, str) else names
    names = [each if each.startswith("*") else root + each for each in names]
    checkpoint, rename = (milepost.Checkpoint(model=live), {"": "model"}) if root else (milepost.Checkpoint(live), {})
    status = checkpoint.read(tmp_path / "m.weights.h5", rename=rename, **{argument: names})
    status.assert_consumed().assert_existing_objects_matched()
    assert "".join(str(int(np.asarray(each).flat[0])) for each in live.weights) == restored


def test_a_value_that_no_layer_takes_hides_no_other_value(tmp_path):
    made(1).save_weights(tmp_path / "m.weights.h5")
    with pytest.importorskip("h5py").File(tmp_path / "m.weights.h5", "a") as file:
        file["layers/dense/vars/7"] = np.ones(2)
        file["a/vars/7"] = np.ones(2)
    live = made(0)
    report = milepost.Checkpoint(live).read(tmp_path / "m.weights.h5").expect_partial().report()
    assert [each.key for each in report.unexpected] == ["a/vars/7", "layers/dense/vars/7"]
    assert not report.missing
    assert all(np.asarray(each).min() == 1 for each in live.weights)


def test_a_value_below_the_name_of_a_layer_hides_none_of_the_layer(tmp_path):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, inputs):
            return self.dense(inputs)

    saved, live = Net(), Net()
    for each in (saved, live):
        each(np.ones((1, 3)))
    saved.save_weights(tmp_path / "m.weights.h5")
    with pytest.importorskip("h5py").File(tmp_path / "m.weights.h5", "a") as file:
        file["dense/vars/7"] = np.ones(2)
    report = milepost.Checkpoint(live).read(tmp_path / "m.weights.h5").expect_partial().report()
    assert [each.key for each in report.unexpected] == ["dense/vars/7"]
    assert not report.missing
    assert np.array_equal(live.dense.kernel, saved.dense.kernel)


@pytest.mark.parametrize("only", ["optimizer/vars/1", "optimizer/_learning_rate"])
def test_only_takes_a_variable_of_the_optimizer_by_either_name(tmp_path, only):
    saved, live = made(1), made(0)
    for model, rate in ((saved, 0.5), (live, 0.25)):
        model.compile(keras.optimizers.Adam(rate), "mse")
        model.optimizer.build(model.trainable_variables)
    saved.save_weights(tmp_path / "m.weights.h5")
    status = milepost.Checkpoint(live).read(tmp_path / "m.weights.h5", only=only)
    status.assert_consumed().assert_existing_objects_matched()
    assert float(live.optimizer.learning_rate) == 0.5
    assert all(np.asarray(each).max() == 0 for each in live.weights)


@pytest.mark.parametrize("only", ["nothing", []])
def test_a_selection_of_nothing_fails_both_assertions(tmp_path, only):
    made(1).save_weights(tmp_path / "m.weights.h5")
    with pytest.warns(milepost.UnrestoredWarning, match="only"):
        status = milepost.Checkpoint(made(0)).read(tmp_path / "m.weights.h5", only=only)
    for check in (status.assert_consumed, status.assert_existing_objects_matched):
        with pytest.raises(milepost.UnmatchedError):
            check()


@pytest.mark.parametrize("name", ["layers/dense", "layer_with_weights-0", "_functional/layer_with_weights-0"])
def test_both_names_select_and_cast(tmp_path, name):
    made(1).save_weights(tmp_path / "m.weights.h5")
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float16")
    try:
        live = made(0)
    finally:
        keras.config.set_dtype_policy(policy)
    status = milepost.Checkpoint(live).read(tmp_path / "m.weights.h5", only=name, cast=name)
    status.assert_consumed().assert_existing_objects_matched()
    assert "".join(str(int(np.asarray(each).flat[0])) for each in live.weights) == "1100"
