"""Files of Keras' own saving: read, restored into models, converted, and written so that Keras loads them."""

import os
import zipfile

import numpy as np
import pytest

import milepost
from milepost.tools.cli import main
from tests.tools.commands import json_of

pytest.importorskip("h5py")
keras = pytest.importorskip("keras")
if int(keras.__version__.partition(".")[0]) < 3:
    pytest.skip("Keras 2 has other files", allow_module_level=True)

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
ENDINGS = ["weights.h5", "keras", "h5"]


def model(built=True):
    """Layers in a model in a model, with state that is not trained, and an attention, whose layers are attributes."""
    layers = keras.layers
    inputs = keras.Input((4,))
    inner = keras.Sequential([layers.Dense(6, activation="tanh"), layers.BatchNormalization()], name="inner")
    hidden = inner(layers.Dense(5, name="first")(inputs))
    hidden = layers.MultiHeadAttention(2, 3)(hidden[:, None, :], hidden[:, None, :])
    net = keras.Model(inputs, layers.Dense(2, name="head")(layers.Flatten()(hidden)))
    net.compile("adam", "mse")
    if built:
        net.optimizer.build(net.trainable_variables)
    return net


def outputs(net):
    return np.asarray(keras.ops.convert_to_numpy(net(X)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with one model in each kind of file, and what it predicts."""
    directory = tmp_path_factory.mktemp("keras")
    net = model()
    net.fit(X, np.ones((5, 2), np.float32), verbose=0, epochs=2)
    net.save_weights(directory / "m.weights.h5")
    net.save(directory / "m.keras")
    net.save(directory / "m.h5")
    return directory, outputs(net), [np.asarray(keras.ops.convert_to_numpy(each)) for each in net.optimizer.variables]


@pytest.fixture(params=ENDINGS)
def file(request, saved):
    return saved[0] / f"m.{request.param}"


class TestRestore:
    def test_into_a_model(self, saved, file):
        fresh = model()
        status = milepost.Checkpoint(fresh).read(file)
        np.testing.assert_array_equal(outputs(fresh), saved[1])
        assert not status.report().unexpected
        assert not status.report().deferred
        assert all("_loss_tracker" in each.key or "seed" in each.key for each in status.report().missing)

    def test_the_optimizer(self, saved, file):
        fresh = model()
        milepost.Checkpoint(fresh).read(file)
        for live, expected in zip(fresh.optimizer.variables, saved[2], strict=True):
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(live), expected)

    def test_below_another_root(self, saved, file):
        checkpoint = milepost.Checkpoint(net=model())
        checkpoint.restore(file, rename={"": "net"})
        np.testing.assert_array_equal(outputs(checkpoint.net), saved[1])

    def test_an_optimizer_without_a_step_is_reported(self, saved, file):
        fresh = model(built=False)
        status = milepost.Checkpoint(fresh).read(file).expect_partial()
        np.testing.assert_array_equal(outputs(fresh), saved[1])
        left = status.report().unexpected + status.report().deferred
        assert len(left) >= len(saved[2]) - 2
        with pytest.raises(AssertionError):
            status.assert_consumed()

    def test_a_model_that_is_not_built_is_an_error(self, file):
        with pytest.raises(milepost.MismatchError, match="build the model"):
            milepost.Checkpoint(keras.Sequential([keras.layers.Dense(5)])).read(file)

    @pytest.mark.parametrize("optimizer", ["adam", "sgd"])
    def test_a_compiled_model_that_is_not_built_is_an_error(self, tmp_path, file, optimizer):
        """Its optimizer has variables that are in the file, and its layers have none."""

        def made():
            net = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(2)])
            net.compile(optimizer, "mse")
            return net

        net = made()
        net.fit(X, np.ones((5, 2), np.float32), verbose=0)
        path = tmp_path / file.name
        (net.save_weights if path.name.endswith("weights.h5") else net.save)(path)
        fresh = made()
        with pytest.raises(milepost.MismatchError, match="not built"):
            milepost.Checkpoint(fresh).read(path)
        assert int(fresh.optimizer.iterations) == 0

    def test_a_layer_that_is_not_built_can_be_left_out(self, tmp_path):
        class Net(keras.Model):
            def __init__(self, extra):
                super().__init__()
                self.used, self.extra, self.uses_extra = keras.layers.Dense(3), keras.layers.Dense(3), extra

            def call(self, inputs):
                return self.extra(self.used(inputs)) if self.uses_extra else self.used(inputs)

        net, fresh = Net(True), Net(False)
        net(X), fresh(X)
        net.save_weights(tmp_path / "a.weights.h5")
        with pytest.raises(milepost.MismatchError, match=r"(?s)not built.*key: extra/vars/"):
            milepost.Checkpoint(fresh).read(tmp_path / "a.weights.h5")
        milepost.Checkpoint(fresh).read(tmp_path / "a.weights.h5", ignore="extra").assert_consumed()
        np.testing.assert_array_equal(fresh.used.get_weights()[0], net.used.get_weights()[0])

    def test_a_layer_is_found_by_a_property_of_the_saved_name(self, tmp_path):
        class Net(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(3)

            def call(self, inputs):
                return self.dense(inputs)

        class Renamed(keras.Model):
            def __init__(self):
                super().__init__()
                self.a_dense = keras.layers.Dense(3)

            @property
            def dense(self):
                return self.a_dense

            def call(self, inputs):
                return self.dense(inputs)

        net, fresh = Net(), Renamed()
        net(X), fresh(X)
        net.save_weights(tmp_path / "a.weights.h5")
        milepost.Checkpoint(fresh).read(tmp_path / "a.weights.h5").assert_consumed()
        np.testing.assert_array_equal(outputs(fresh), outputs(net))

    def test_only_a_part(self, saved):
        fresh = model()
        before = outputs(fresh)
        status = milepost.Checkpoint(fresh).read(saved[0] / "m.weights.h5", only="layers/dense")
        assert len(status.report().matched) == 2
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(fresh.get_layer("first").kernel),
            milepost.load(saved[0] / "m.weights.h5")["layers"]["dense"]["vars"]["0"],
        )
        assert not np.array_equal(outputs(fresh), before)

    def test_another_head(self, saved):
        """The weights of a model without its last layer, whose shape is another one here."""
        inner = model()
        head = keras.layers.Dense(7, name="other")
        other = keras.Model(inner.inputs, head(inner.layers[-2].output))
        status = milepost.Checkpoint(other).read(saved[0] / "m.weights.h5", ignore=["layers/dense_1", "optimizer"])
        status.expect_partial()
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(other.get_layer("first").kernel),
            milepost.load(saved[0] / "m.weights.h5")["layers"]["dense"]["vars"]["0"],
        )
        with pytest.raises(milepost.MismatchError):
            milepost.Checkpoint(other).read(saved[0] / "m.weights.h5", ignore="optimizer")

    def test_casts(self, saved, tmp_path):
        half = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, dtype="float16")])
        whole = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
        whole.save_weights(tmp_path / "a.weights.h5")
        with pytest.raises(milepost.MismatchError):
            milepost.Checkpoint(half).read(tmp_path / "a.weights.h5")
        milepost.Checkpoint(half).read(tmp_path / "a.weights.h5", cast=True)
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(half.layers[0].kernel),
            keras.ops.convert_to_numpy(whole.layers[0].kernel).astype(np.float16),
        )

    def test_a_layer_without_its_model(self, saved):
        layer = keras.layers.Dense(5)
        layer.build((4,))
        only = milepost.Checkpoint(layer=layer)
        only.restore(saved[0] / "m.weights.h5", rename={"layers/dense": "layer"}, only="layer")
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(layer.bias),
            milepost.load(saved[0] / "m.h5")["model_weights"]["first"]["first"]["bias"],
        )

    def test_another_shape_changes_nothing(self, saved):
        fresh = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
        before = fresh.get_weights()
        with pytest.raises(milepost.MismatchError, match=r"layers/dense/vars/0"):
            milepost.Checkpoint(fresh).read(saved[0] / "m.weights.h5", only="layers/dense")
        for old, new in zip(before, fresh.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)


def test_the_weights_of_an_application(tmp_path):
    """Of the form in which Keras publishes them: all layers in their order, and another head."""
    net = keras.applications.MobileNet((32, 32, 3), alpha=0.25, weights=None, classes=10)
    net.save(tmp_path / "a.h5")
    net.save_weights(tmp_path / "a.weights.h5")
    image = np.ones((1, 32, 32, 3), np.float32)
    expected = np.asarray(keras.ops.convert_to_numpy(net(image)))
    for name in ("a.h5", "a.weights.h5"):
        fresh = keras.applications.MobileNet((32, 32, 3), alpha=0.25, weights=None, classes=10)
        status = milepost.Checkpoint(fresh).read(tmp_path / name)
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(fresh(image)), expected)
        assert not status.report().unexpected
    body = keras.applications.MobileNet((32, 32, 3), alpha=0.25, weights=None, include_top=False)
    milepost.Checkpoint(body).read(tmp_path / "a.h5").expect_partial()
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(body.get_layer("conv1").kernel),
        keras.ops.convert_to_numpy(net.get_layer("conv1").kernel),
    )


class TestCommands:
    def test_show_and_diff(self, saved, capsys):
        found = json_of(capsys, "show", saved[0] / "m.keras")
        assert "layers/dense/vars/0" in [each["key"] for each in found["tensors"]]
        assert main(["diff", str(saved[0] / "m.keras"), str(saved[0] / "m.weights.h5")]) == 0
        assert main(["verify", str(saved[0] / "m.h5")]) == 0
        capsys.readouterr()
        rows = json_of(capsys, "ls", saved[0])["checkpoints"]
        assert [row["state"] for row in rows] == ["complete"] * 3

    def test_keras_loads_what_is_converted(self, saved, tmp_path):
        for there in ("a.safetensors", "a.pt", "a.npz", "own"):
            assert main(["convert", str(saved[0] / "m.keras"), str(tmp_path / there)]) == 0
            assert main(["convert", str(tmp_path / there), str(tmp_path / f"{there}.weights.h5")]) == 0
            fresh = model()
            fresh.load_weights(tmp_path / f"{there}.weights.h5")
            np.testing.assert_array_equal(outputs(fresh), saved[1])

    def test_names_are_given_by_rename(self, tmp_path, capsys):
        net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        path = milepost.Checkpoint(model=net).write(tmp_path / "ckpt")
        kernel, bias = "layers/dense/vars/0", "layers/dense/vars/1"
        layer = "model/layer_with_weights-0"
        target = tmp_path / "a.weights.h5"
        assert (
            main(
                [
                    "convert",
                    path,
                    str(target),
                    "--rename",
                    f"{layer}/kernel={kernel}",
                    "--rename",
                    f"{layer}/bias={bias}",
                ]
            )
            == 0
        )
        fresh = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        fresh.load_weights(target)
        np.testing.assert_array_equal(fresh.get_weights()[0], net.get_weights()[0])

    def test_a_checkpoint_of_a_model_is_refused_with_a_way_out(self, tmp_path, capsys):
        net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        path = milepost.Checkpoint(model=net).write(tmp_path / "ckpt")
        assert main(["convert", path, str(tmp_path / "a.weights.h5")]) == 3
        said = capsys.readouterr().err
        assert "paths such as layers/dense/vars/0" in said
        assert "model.save_weights()" in said
        assert not os.path.exists(tmp_path / "a.weights.h5")


def test_bfloat16(tmp_path):
    net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, dtype="bfloat16")])
    net.save_weights(tmp_path / "a.weights.h5")
    found = milepost.load(tmp_path / "a.weights.h5")["layers"]["dense"]["vars"]
    assert found["0"].dtype == "bfloat16"
    fresh = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, dtype="bfloat16")])
    milepost.Checkpoint(fresh).read(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(fresh.get_weights()[0], net.get_weights()[0])


class TestDamagedArchive:
    @pytest.fixture
    def damaged(self, saved, tmp_path):
        """A ``.keras`` file in which one bit of a weight differs."""
        with zipfile.ZipFile(saved[0] / "m.keras") as archive:
            record = archive.getinfo("model.weights.h5")
            content = archive.read(record)
        weight = saved[2][-1].tobytes()  # the second moments of a bias of the head
        data = (saved[0] / "m.keras").read_bytes()
        place = data.index(content) + content.index(weight)
        path = tmp_path / "m.keras"
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        return path

    def test_nothing_is_restored(self, damaged):
        fresh = model()
        before = fresh.get_weights()
        with pytest.raises(milepost.CorruptCheckpointError, match="wrong checksum") as caught:
            milepost.Checkpoint(fresh).read(damaged)
        assert caught.value.file == str(damaged)
        assert all(map(np.array_equal, before, fresh.get_weights()))

    def test_verify_finds_it(self, damaged, capsys):
        assert main(["verify", str(damaged)]) == 1
        assert "wrong checksum" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["config.json", "metadata.json"])
    def test_verify_finds_it_in_other_records(self, saved, tmp_path, capsys, name):
        with zipfile.ZipFile(saved[0] / "m.keras") as archive:
            content = archive.read(name)
        data = bytearray((saved[0] / "m.keras").read_bytes())
        data[data.index(content) + 10] ^= 1
        (tmp_path / "m.keras").write_bytes(data)
        assert main(["verify", str(tmp_path / "m.keras")]) == 1
        said = capsys.readouterr().err
        assert "the .keras archive is damaged" in said
        assert f"key: {name}" in said

    def test_an_intact_one_is_verified(self, saved, capsys):
        assert main(["verify", str(saved[0] / "m.keras")]) == 0
        assert "no checksums" not in capsys.readouterr().out

    def test_a_value_of_it_is_not_shown(self, damaged, capsys):
        key = next(iter(milepost.load_checkpoint(damaged).get_variable_to_shape_map()))
        assert main(["cat", str(damaged), key, "-o", str(damaged) + ".npy"]) == 3
        assert "wrong checksum" in capsys.readouterr().err


def test_a_packed_archive_is_refused(saved, tmp_path):
    with (
        zipfile.ZipFile(saved[0] / "m.keras") as old,
        zipfile.ZipFile(tmp_path / "m.keras", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(milepost.UnsupportedError, match=r"load_model"):
        milepost.load(tmp_path / "m.keras")


def test_without_h5py_the_error_says_what_to_install(saved, file, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(milepost.UnsupportedError, match=r"pip install \"milepost\[keras\]\""):
        milepost.load(file)
