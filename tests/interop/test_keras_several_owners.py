"""Variables that several objects of Keras save, and values that Keras computes when it saves them: files have what Keras' own have."""

import numpy as np
import pytest

import milepost

keras = pytest.importorskip("keras")
h5py = pytest.importorskip("h5py")
if not keras.__version__.startswith("3."):
    pytest.skip("these are classes of Keras 3", allow_module_level=True)


def normalised():
    return [keras.Input((3,)), keras.layers.SpectralNormalization(keras.layers.Dense(4))]


def low_rank():
    layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2)]
    keras.Sequential(layers)
    layers[1].enable_lora(2)
    return layers


def low_rank_of_integers():
    layers = low_rank()
    keras.Sequential(layers).quantize("int8")
    return layers


def of_an_embedding():
    layers = [keras.Input((3,), dtype="int32"), keras.layers.Embedding(5, 4)]
    keras.Sequential(layers)
    layers[1].enable_lora(2)
    return layers


def scaled():
    return [keras.Input((3,)), keras.layers.Dense(4)]


KINDS = [normalised, low_rank, low_rank_of_integers, of_an_embedding, scaled]


def built(kind, seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(kind())
    if kind is not low_rank_of_integers:
        model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()) if kind is scaled else "adam", "mse")
        model.optimizer.build(model.trainable_variables)
    generator = np.random.default_rng(seed)
    for each in variables(model):
        if each.dtype == "float32":
            each.assign(generator.random(each.shape))
    return model


def variables(model):
    return [*model.variables, *(model.optimizer.variables if getattr(model, "optimizer", None) is not None else ())]


def values(model):
    return [keras.ops.convert_to_numpy(each) for each in variables(model)]


def datasets(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, each: found.update({name: np.asarray(each)}) if isinstance(each, h5py.Dataset) else None
        )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_converted_file_has_what_keras_saves(kind, tmp_path):
    model, other = built(kind, 1), built(kind, 2)
    before = values(other)
    path = milepost.Checkpoint(model=model).save(tmp_path / "ckpt")
    model.save_weights(tmp_path / "keras.weights.h5")
    milepost.convert(path, tmp_path / "a.weights.h5", model={"model": other})
    found, expected = datasets(tmp_path / "a.weights.h5"), datasets(tmp_path / "keras.weights.h5")
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        np.testing.assert_array_equal(found[name], each, err_msg=name)
    assert all(map(np.array_equal, values(other), before)), "the live model has not changed"
    other.load_weights(tmp_path / "a.weights.h5")
    model.load_weights(tmp_path / "keras.weights.h5")
    assert all(map(np.array_equal, values(other), values(model)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_keras_is_restored_as_by_keras(kind, tmp_path):
    model, other = built(kind, 1), built(kind, 2)
    model.save_weights(tmp_path / "keras.weights.h5")
    status = milepost.Checkpoint(other).read(tmp_path / "keras.weights.h5")
    model.load_weights(tmp_path / "keras.weights.h5")
    assert all(map(np.array_equal, values(other), values(model)))
    status.assert_consumed()


@pytest.mark.parametrize(
    ("selection", "is_taken"), [({"only": "layers/dense"}, True), ({"ignore": "layers/dense"}, False)]
)
def test_a_layer_with_lora_is_taken_or_left_out_as_a_whole(selection, is_taken, tmp_path):
    model, other = built(low_rank, 1), built(low_rank, 2)
    before = values(other.layers[0])
    model.save_weights(tmp_path / "keras.weights.h5")
    milepost.Checkpoint(other).read(tmp_path / "keras.weights.h5", **selection)
    model.load_weights(tmp_path / "keras.weights.h5")
    expected = values(model.layers[0]) if is_taken else before
    assert all(map(np.array_equal, values(other.layers[0]), expected))


def test_a_kernel_alone_is_no_model_with_lora(tmp_path):
    model = built(low_rank, 1)
    model.layers[0].lora_kernel_a = None
    path = milepost.Checkpoint(model=model).save(tmp_path / "ckpt")
    with pytest.raises(milepost.MismatchError) as caught:
        milepost.convert(path, tmp_path / "a.weights.h5", model={"model": built(low_rank, 2)})
    assert "lora_kernel_a" in str(caught.value)


class TestVocabularies:
    def saved(self, directory, **options):
        pytest.importorskip("tensorflow", reason="lookup layers need TensorFlow")

        def build(tokens):
            layer = keras.layers.StringLookup(vocabulary=tokens, **options)
            return keras.Sequential([keras.Input((3,), dtype="string"), layer, keras.layers.Dense(2)])

        return milepost.Checkpoint(model=build(["a", "b"])).save(directory / "ckpt"), build(["a", "b"])

    def test_a_file_of_weights_has_no_place_for_one(self, tmp_path):
        path, model = self.saved(tmp_path, output_mode="multi_hot")
        done = milepost.convert(path, tmp_path / "a.weights.h5", model={"model": model})
        assert any("vocabulary" in each for each in done.not_carried_over)

    def test_the_weights_of_its_tokens_are_written(self, tmp_path):
        weights = np.array([1.0, 2.0], np.float32)
        path, model = self.saved(tmp_path, output_mode="tf_idf", idf_weights=weights)
        milepost.convert(path, tmp_path / "a.weights.h5", model={"model": model})
        model.load_weights(tmp_path / "a.weights.h5")
        assert datasets(tmp_path / "a.weights.h5")["layers/string_lookup/vars/idf_weights"].tolist()[-2:] == [1.0, 2.0]
