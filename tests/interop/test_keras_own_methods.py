"""Classes of Keras 3 that save by ``save_own_variables`` and ``save_assets``: in files that Keras writes, and in files that Keras reads."""

import numpy as np
import pytest

import milepost

keras = pytest.importorskip("keras")
pytest.importorskip("h5py")


class Own(keras.layers.Dense):  # type: ignore[name-defined]
    """It keeps an array and a text beside its variables."""

    def build(self, shape):
        self.seen, self.text = np.zeros(3), "none"
        super().build(shape)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        store["seen"] = self.seen

    def load_own_variables(self, store):
        super().load_own_variables({"0": store["0"], "1": store["1"]})
        self.seen = np.array(store["seen"])

    def save_assets(self, directory):
        with open(f"{directory}/text.txt", "w") as file:
            file.write(self.text)

    def load_assets(self, directory):
        with open(f"{directory}/text.txt") as file:
            self.text = file.read()


class Loading(keras.layers.Dense):  # type: ignore[name-defined]
    """It counts how often its variables were loaded."""

    loaded = 0

    def load_own_variables(self, store):
        self.loaded += 1
        super().load_own_variables(store)


def made(text="none"):
    model = keras.Sequential([keras.Input((3,)), Own(3), Loading(2), keras.layers.Dense(1)])
    if text != "none":
        model.layers[0].seen, model.layers[0].text = np.arange(3.0), text
    return model


def weights(model):
    return [each.tolist() for each in model.get_weights()]


@pytest.fixture
def model():
    keras.utils.set_random_seed(1)
    return made("hello")


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5", "m.weights.json"])
def test_a_file_of_keras_is_loaded_by_these_methods(tmp_path, model, name):
    if name.endswith(".keras"):
        model.save(tmp_path / name)
    else:
        model.save_weights(tmp_path / name, **({"max_shard_size": 1e-7} if name.endswith("json") else {}))
    live = made()
    milepost.Checkpoint(live).read(tmp_path / name).assert_consumed().assert_existing_objects_matched()
    assert live.layers[0].seen.tolist() == [0, 1, 2]
    assert live.layers[0].text == ("hello" if name.endswith(".keras") else "none")
    assert live.layers[1].loaded == 1
    assert weights(live) == weights(model)


@pytest.mark.parametrize("name", ["m.weights.h5", "m.weights.json"])
def test_keras_loads_what_was_converted(tmp_path, model, name):
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    size = 60 if name.endswith("json") else None
    done = milepost.convert(path, tmp_path / name, model={"model": made()}, max_shard_size=size)
    assert not done.unwanted
    assert [each for each in done.not_carried_over if "save_assets" in each]
    assert len(done.files) == (4 if size else 1)
    live = made()
    live.load_weights(tmp_path / name)
    assert live.layers[0].seen.tolist() == [0, 1, 2]
    assert weights(live) == weights(model)
    milepost.Checkpoint(made()).read(tmp_path / name).assert_consumed()


def test_a_class_that_only_loads_by_code_of_its_own_does_so_from_a_checkpoint_too(tmp_path, model):
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    live = made()
    milepost.Checkpoint(model=live).read(path).assert_consumed().assert_existing_objects_matched()
    assert live.layers[1].loaded == 1


def test_an_error_of_these_methods_changes_nothing(tmp_path, model):
    class Failing(keras.layers.Dense):
        def load_own_variables(self, store):
            raise ValueError("of the class")

    saved, live = (keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), Failing(2)]) for _ in range(2))
    saved.save_weights(tmp_path / "m.weights.h5")
    before = weights(live)
    with pytest.raises(milepost.MilepostError, match="of the class"):
        milepost.Checkpoint(live).read(tmp_path / "m.weights.h5")
    assert weights(live) == before


def test_fewer_files_replace_more(tmp_path, model):
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    target = tmp_path / "m.weights.json"
    milepost.convert(path, target, model={"model": model}, max_shard_size=60)
    with pytest.raises(milepost.CheckpointExistsError):
        milepost.convert(path, target, model={"model": model}, max_shard_size=600)
    done = milepost.convert(path, target, model={"model": model}, max_shard_size=600, overwrite=True)
    assert sorted(str(each) for each in tmp_path.glob("m*")) == sorted(done.files)
    made().load_weights(target)


def test_several_files_need_the_name_of_an_index(tmp_path, model):
    path = milepost.Checkpoint(model=model).write(tmp_path / "ckpt")
    with pytest.raises(milepost.UnsupportedError, match=r"\.weights\.json"):
        milepost.convert(path, tmp_path / "m.weights.h5", model={"model": model}, max_shard_size=60)


def test_a_model_without_variables_becomes_a_file_without_any(tmp_path):
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.ReLU()(inputs))
    path = milepost.Checkpoint(model=model, step=milepost.Variable(1)).write(tmp_path / "ckpt")
    milepost.convert(path, tmp_path / "m.weights.h5", model={"model": model})
    model.load_weights(tmp_path / "m.weights.h5")
