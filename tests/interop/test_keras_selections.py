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
