"""`milepost.save_weights` and `load_weights` beside those of Keras 2, in both directions, for Keras 3 on every backend."""

import importlib
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import milepost
from tests import programs
from tests.interop.keras_weights import COMPILED, MODELS, X, Y, predictions, trained

tf_keras = pytest.importorskip("tf_keras", reason="compares with the weights of Keras 2")
HAS_KERAS_3 = (
    importlib.util.find_spec("keras") is not None and int(importlib.import_module("keras").__version__[0]) >= 3
)


def save(net, path, library):
    milepost.save_weights(net, path) if library == "milepost" else net.save_weights(path)


def load(net, path, library):
    return milepost.load_weights(net, path) if library == "milepost" else net.load_weights(path)


class Saved(NamedTuple):
    """A model of Keras 2 and its weights, which each library has saved.

    Attributes:
        net: The model, which nothing trains any more.
        paths: By library, where its weights are.
        losses: Those of its next epoch, if it was compiled.
    """

    net: Any
    paths: dict[str, str]
    losses: list[float]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Gives a model of Keras 2, trained or only built, and its weights; several tests read each."""
    made = {}

    def get(model, compiled):
        if (model, compiled) not in made:
            net = trained(tf_keras, model, compiled)
            directory = tmp_path_factory.mktemp("saved")
            paths = {library: str(directory / library) for library in ("milepost", "keras")}
            for library, path in paths.items():
                save(net, path, library)
            np.save(directory / "predictions.npy", predictions(net))
            losses = net.fit(X, Y, batch_size=4, shuffle=False, verbose=0).history["loss"] if compiled else []
            made[model, compiled] = Saved(net, paths, losses)
        return made[model, compiled]

    return get


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("writer", "reader"), [("milepost", "keras"), ("keras", "milepost"), ("milepost", "milepost")])
class TestKeras2:
    @pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
    def test_gives_the_same_predictions(self, saved, model, built, writer, reader):
        net, paths, _ = saved(model, compiled=False)
        fresh = MODELS[model](tf_keras)
        if built:
            predictions(fresh)
        status = load(fresh, paths[writer], reader)
        np.testing.assert_array_equal(predictions(fresh), predictions(net))
        status.assert_consumed()

    def test_resumes_the_optimizer_of_a_compiled_model(self, saved, model, writer, reader):
        _, paths, expected = saved(model, compiled=True)
        fresh = MODELS[model](tf_keras)
        fresh.compile(optimizer=tf_keras.optimizers.Adam(0.01), loss="mse", run_eagerly=model not in COMPILED)
        load(fresh, paths[writer], reader)
        assert fresh.fit(X, Y, batch_size=4, shuffle=False, verbose=0).history["loss"] == expected
        assert int(fresh.optimizer.iterations) == 4


@pytest.fixture(scope="module")
def theirs(saved, tmp_path_factory):
    """A directory of weights that Keras 2 saved."""
    directory = tmp_path_factory.mktemp("theirs")
    for model in MODELS:
        path = Path(saved(model, compiled=True).paths["keras"])
        shutil.copy(path.with_name("predictions.npy"), directory / f"{model}.npy")
        for file in path.parent.glob(f"{path.name}.*"):
            shutil.copy(file, directory / file.name.replace(path.name, model))
    return directory


@pytest.fixture(scope="module", params=["tensorflow", "jax", "torch"])
def exchanged(request, theirs, tmp_path_factory):
    """A directory of weights that Keras 3 on a backend saved, and what it loaded of those that Keras 2 did."""
    if not HAS_KERAS_3 or importlib.util.find_spec(request.param) is None:
        pytest.skip("Keras 3 or this backend is not installed")
    ours = tmp_path_factory.mktemp("ours")
    done = programs.run(
        ["-m", "tests.interop.keras_weights", theirs, ours],
        imports=programs.imports("keras", request.param),
        environment=programs.environment(request.param),
    )
    assert done.returncode == 0, done.stderr
    return ours, json.loads(done.stdout.splitlines()[-1])


class TestKeras3:
    def test_predicts_from_weights_of_keras_2(self, exchanged):
        """Every model, built before loading and not."""
        _, found = exchanged
        assert len(found) == 2 * len(MODELS)
        assert [name for name, close in found.items() if not close] == []

    @pytest.mark.parametrize("model", MODELS)
    def test_saves_weights_from_which_keras_2_predicts(self, exchanged, model):
        directory, _ = exchanged
        net = MODELS[model](tf_keras)
        net.load_weights(str(directory / model)).expect_partial()
        expected = np.load(directory / f"{model}.npy")
        np.testing.assert_allclose(predictions(net), expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("model", MODELS)
    def test_saves_optimizers_that_keras_2_resumes(self, exchanged, model):
        directory, _ = exchanged
        net = MODELS[model](tf_keras)
        predictions(net)
        net.compile(optimizer=tf_keras.optimizers.Adam(0.01), loss="mse", run_eagerly=model not in COMPILED)
        net.load_weights(str(directory / model)).expect_partial()
        net.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        assert int(net.optimizer.iterations) == 4


def test_the_latest_checkpoint_is_the_one_saved_last(tmp_path):
    net = trained(tf_keras, "sequential", compiled=False)
    for name in ("first", "second"):
        milepost.save_weights(net, tmp_path / name)
    assert milepost.latest_checkpoint(tmp_path) == str(tmp_path / "second")


def test_weights_of_a_part_are_loaded_where_partial_is_expected(tmp_path):
    """A model that lacks a layer of the saved one takes the others."""
    net = trained(tf_keras, "sequential", compiled=False)
    milepost.save_weights(net, tmp_path / "weights")
    shorter = tf_keras.Sequential([tf_keras.layers.Dense(4)])
    predictions(shorter)
    milepost.load_weights(shorter, tmp_path / "weights").expect_partial().assert_existing_objects_matched()
    np.testing.assert_array_equal(shorter.get_weights()[0], net.get_weights()[0])


@pytest.mark.parametrize("ending", [".h5", ".weights.h5", ".keras"])
def test_paths_of_other_formats_are_refused(tmp_path, ending):
    net = trained(tf_keras, "sequential", compiled=False)
    with pytest.raises(milepost.UnsupportedError, match="remove the extension"):
        milepost.save_weights(net, tmp_path / f"model{ending}")
    with pytest.raises(milepost.CheckpointNotFoundError):
        milepost.load_weights(net, tmp_path / f"model{ending}")


def test_files_of_keras_are_not_restored_into_models_of_keras_2(tmp_path):
    pytest.importorskip("h5py")
    net = trained(tf_keras, "sequential", compiled=False)
    net.save_weights(str(tmp_path / "a.weights.h5"))
    with pytest.raises(milepost.UnsupportedError, match=r"Keras 3 only(?s:.*)model\.load_weights"):
        milepost.load_weights(net, tmp_path / "a.weights.h5")
