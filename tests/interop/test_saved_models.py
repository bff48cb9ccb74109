"""What a SavedModel's directory means: the checkpoint of its variables, for every call that takes a checkpoint."""

import os
import shutil

import numpy as np
import pytest

import milepost
from milepost import CheckpointNotFoundError, UnrestoredWarning, UnsupportedError
from milepost.tools.cli import main

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow writes SavedModels")

KEY = "v/.ATTRIBUTES/VARIABLE_VALUE"
WAYS = {
    "directory": "",
    "slash": "/",
    "program": "/saved_model.pb",
    "folder": "/variables",
    "folder and slash": "/variables/",
    "prefix": "/variables/variables",
    "index": "/variables/variables.index",
}


def module(value=1.0):
    made = tf.Module()
    made.v = tf.Variable([value, 2.0])
    made.listed = [tf.Variable(3.0)]
    return made


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    tf.saved_model.save(module(), str(directory / "model"))
    tf.saved_model.save(tf.Module(), str(directory / "no_variables"))
    tf.saved_model.save(module(), str(directory / "versions" / "9"))
    tf.saved_model.save(module(7.0), str(directory / "versions" / "10"))
    return directory


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def path(request, saved):
    return f"{saved}/model{request.param}"


def value_after(restore):
    live = module(0.0)
    restore(live)
    return live.v.numpy().tolist()


class TestEveryPathOfIt:
    def test_is_read(self, path):
        assert milepost.load_checkpoint(path).get_tensor(KEY).tolist() == [1, 2]
        assert milepost.CheckpointReader(path).get_tensor(KEY).tolist() == [1, 2]
        assert milepost.load_variable(path, KEY).tolist() == [1, 2]

    def test_is_listed(self, path, saved):
        prefix = f"{saved}/model/variables/variables"
        assert dict(milepost.list_variables(path)) == dict(tf.train.list_variables(prefix))
        assert milepost.CheckpointView(path).graph == milepost.CheckpointView(prefix).graph

    def test_is_restored(self, path):
        assert value_after(lambda live: milepost.Checkpoint(live).restore(path).expect_partial()) == [1, 2]
        assert value_after(lambda live: milepost.Checkpoint(live).read(path).expect_partial()) == [1, 2]
        assert value_after(lambda live: milepost.Checkpoint(live).read(path).expect_partial()) == [1, 2]

    def test_has_all_live_values(self, path):
        """It has no counter, and lacks none."""
        milepost.Checkpoint(module()).restore(path).assert_existing_objects_matched()

    def test_says_nothing_where_values_were_restored(self, path, recwarn):
        milepost.Checkpoint(module()).restore(path)
        assert not [each for each in recwarn if issubclass(each.category, UnrestoredWarning)]

    @pytest.mark.parametrize("command", ["ls", "show", "verify", "graph"])
    def test_is_shown(self, path, command, capsys):
        assert main([command, path]) == 0
        assert "variables" in capsys.readouterr().out

    def test_its_program_is_not_called_whole(self, path, capsys):
        assert main(["verify", path]) == 0
        assert "; the program of this SavedModel is not read" in capsys.readouterr().out

    def test_is_found_from_inside(self, saved, monkeypatch):
        """Relative paths lead to it from everywhere."""
        for below, path in [
            ("", "model"),
            ("model", "."),
            ("model", "saved_model.pb"),
            ("model", "variables"),
            ("model/variables", "variables"),
            ("model/variables", ".."),
        ]:
            monkeypatch.chdir(saved / below)
            assert value_after(lambda live, path=path: milepost.Checkpoint(live).read(path)) == [1, 2]


class TestTheLatestOfADirectory:
    def test_is_that_of_its_variables(self, saved):
        latest = milepost.latest_checkpoint(saved / "model")
        assert latest == f"{saved}/model/variables/variables"
        assert value_after(lambda live: milepost.Checkpoint(live).restore(latest)) == [1, 2]

    def test_beside_checkpoints_of_a_training_is_theirs(self, saved, tmp_path):
        """What else would be read is not clear."""
        shutil.copytree(saved / "model", tmp_path / "both")
        trained = milepost.Checkpoint(v=milepost.Variable(5.0)).save(tmp_path / "both" / "ckpt")
        assert milepost.latest_checkpoint(tmp_path / "both") == trained
        for call in (milepost.load_checkpoint, milepost.Checkpoint().restore):
            with pytest.raises(UnsupportedError, match="variables/variables' for the SavedModel") as caught:
                call(tmp_path / "both")
            assert "milepost.latest_checkpoint()" in str(caught.value)

    def test_is_not_a_managers(self, saved, tmp_path):
        shutil.copytree(saved / "model", tmp_path / "model")
        with pytest.warns(
            milepost.MilepostWarning, match="is a SavedModel, which a CheckpointManager does not restore"
        ):
            manager = milepost.CheckpointManager(milepost.Checkpoint(), tmp_path / "model", 3)
        assert manager.restore_or_initialize() is None


class TestWithoutVariables:
    @pytest.mark.parametrize(
        "call",
        [
            milepost.load_checkpoint,
            milepost.CheckpointReader,
            milepost.list_variables,
            milepost.CheckpointView,
            milepost.latest_checkpoint,
            lambda path: milepost.Checkpoint().restore(path),
            lambda path: milepost.Checkpoint().read(path),
            lambda path: milepost.Checkpoint(milepost.Module()).read(path),
        ],
    )
    def test_it_is_said(self, tmp_path, call):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            given = tf.compat.v1.placeholder(tf.float32, [2])
            path = str(tmp_path / "model")
            tf.compat.v1.saved_model.simple_save(session, path, {"x": given}, {"y": given * 2})
        with pytest.raises(CheckpointNotFoundError, match="this SavedModel has no variables"):
            call(path)

    def test_an_object_graph_is_restored(self, saved):
        """TensorFlow 2 writes a checkpoint without values."""
        milepost.Checkpoint(tf.Module()).restore(saved / "no_variables").assert_existing_objects_matched()


class TestVersions:
    def test_the_newest_is_named_first(self, saved):
        calls = (
            milepost.load_checkpoint,
            milepost.CheckpointView,
            milepost.Checkpoint().restore,
            milepost.Checkpoint().read,
        )
        for call in calls:
            with pytest.raises(CheckpointNotFoundError, match=r"versions/10'.*versions/9'") as caught:
                call(f"{saved}/versions")
            assert "contains versions of a SavedModel" in str(caught.value)

    def test_each_is_a_saved_model(self, saved):
        assert value_after(lambda live: milepost.Checkpoint(live).read(saved / "versions" / "10")) == [7, 2]

    def test_the_latest_checkpoint_is_none_of_them(self, saved):
        with pytest.warns(milepost.MilepostWarning, match="pass the version that you want"):
            assert milepost.latest_checkpoint(saved / "versions") is None


def test_tensorflow_1_saved_names(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.compat.v1.placeholder(tf.float32, [2])
        variable = tf.compat.v1.get_variable("scope/v", initializer=[5.0, 6.0])
        session.run(tf.compat.v1.global_variables_initializer())
        path = str(tmp_path / "model")
        tf.compat.v1.saved_model.simple_save(session, path, {"x": given}, {"y": given * variable})
    assert milepost.list_variables(path) == [("scope/v", [2])]
    live = milepost.Checkpoint(v=tf.Variable([0.0, 0.0], name="scope/v"))
    live.read(path).assert_consumed()
    assert live.v.numpy().tolist() == [5, 6]


def test_it_is_no_series_to_add_to(saved, tmp_path):
    """The directory of a SavedModel is not that of a run which goes on."""
    shutil.copytree(saved / "model", tmp_path / "model")
    milepost.Checkpoint(v=milepost.Variable(1.0)).save(tmp_path / "ckpt")
    live = milepost.Checkpoint(module())
    live.restore(tmp_path / "model")
    with pytest.raises(milepost.CheckpointExistsError):
        live.save(tmp_path / "ckpt")


def test_a_model_that_is_not_the_root(saved):
    """A SavedModel has the model as its root."""
    with pytest.warns(UnrestoredWarning, match="pass the model alone"):
        status = milepost.Checkpoint(model=module()).restore(saved / "model")
    with pytest.raises(milepost.UnmatchedError, match="pass the model alone"):
        status.assert_existing_objects_matched()


X = np.random.RandomState(0).rand(8, 3).astype("float32")


def sequential(k, **_):
    return k.Sequential([k.layers.Dense(4), k.layers.BatchNormalization(), k.layers.Dense(4), k.layers.Dense(4)])


def functional(k):
    inputs = k.Input((3,))
    inner = k.layers.Dropout(0.5)(k.layers.Dense(4)(inputs))
    return k.Model(inputs, k.layers.Dense(4)(inner))


def subclassed(k):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.a = k.layers.Dense(4)
            self.b = k.layers.BatchNormalization()

        def call(self, x):
            return self.b(self.a(x))

    return Net()


def trained(k, make):
    model = make(k)
    model.compile(k.optimizers.Adam(0.1), "mse", run_eagerly=True)
    model.fit(X, np.ones((8, 4), "float32"), verbose=0)
    return model


@pytest.fixture(params=["tf_keras", "keras"])
def k(request):
    library = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    if request.param == "keras" and library.backend.backend() != "tensorflow":
        pytest.skip("it is not on TensorFlow")
    return library


@pytest.fixture(params=[sequential, functional, subclassed])
def make(request):
    return request.param


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Gives the directory of a trained model and what it predicts; several tests read each."""
    found = {}

    def get(k, make, writer):
        key = (k.__name__, make, writer)
        if key not in found:
            model = trained(k, make)
            path = str(tmp_path_factory.mktemp("written") / "model")
            model.save(path, save_format="tf") if writer == "model.save" else tf.saved_model.save(model, path)
            found[key] = path, model.predict(X, verbose=0)
        return found[key]

    return get


@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
@pytest.mark.parametrize("writer", ["model.save", "tf.saved_model.save"])
def test_a_model_of_keras_has_every_weight(k, make, built, writer, written):
    if writer == "model.save" and k.__name__ == "keras":
        pytest.skip("Keras 3 saves no SavedModel")
    path, expected = written(k, make, writer)
    live = make(k)
    if built:
        live(X)
    status = milepost.Checkpoint(live).read(path)
    np.testing.assert_array_equal(live.predict(X, verbose=0), expected)
    status.assert_existing_objects_matched()


def test_an_exported_model_has_every_weight(make, tmp_path):
    """Keras 3 exports flat lists of variables."""
    keras = pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")
    if keras.backend.backend() not in ("tensorflow", "jax"):
        pytest.skip("it exports no SavedModel on this backend")
    model = trained(keras, make)
    model.export(str(tmp_path / "model"), verbose=False)
    live = make(keras)
    live(X)
    milepost.Checkpoint(live).read(tmp_path / "model").assert_existing_objects_matched()
    for ours, theirs in zip(live.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("change", ["not built", "frozen", "another layer"])
def test_an_exported_model_fits_or_it_is_said(change, tmp_path):
    keras = pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")
    if keras.backend.backend() not in ("tensorflow", "jax"):
        pytest.skip("it exports no SavedModel on this backend")
    trained(keras, sequential).export(str(tmp_path / "model"), verbose=False)
    live = sequential(keras)
    if change == "another layer":
        live.add(keras.layers.Dense(4))
    if change != "not built":
        live(X)
    if change == "frozen":
        live.layers[2].trainable = False
    before = live.get_weights()
    with pytest.warns(UnrestoredWarning, match="flat lists"):
        status = milepost.Checkpoint(live).read(tmp_path / "model")
    live(X)
    for now, then in zip(live.get_weights(), before, strict=False):
        np.testing.assert_array_equal(now, then)
    with pytest.raises(milepost.UnmatchedError, match="flat lists"):
        status.assert_existing_objects_matched()
