"""Files of other libraries whose values are laid out otherwise."""

from functools import partial

import numpy as np
import pytest

import milepost
from milepost.errors import KeyNotFoundError, UnsupportedError
from milepost.layouts import Concatenate, Reshape, Split, Stack, Transpose, Unstack
from tests.engine.test_linear import calls_of

JOIN = [Concatenate(["*.q", "*.k"], "*.qk"), Transpose("*.qk.w")]
VALUES = {"0.q.w": np.zeros((2, 3)), "0.k.w": np.ones((2, 3)), "0.o.w": np.full((2, 2), 2.0)}


def test_a_safetensors_file_keeps_its_names_with_dots(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    safetensors.save_file(VALUES, tmp_path / "model.safetensors")
    made = milepost.load(str(tmp_path / "model.safetensors"), convert=JOIN)
    assert {name: value.shape for name, value in made.items()} == {"0.o.w": (2, 2), "0.qk.w": (3, 4)}
    assert made["0.qk.w"][0].tolist() == [0, 0, 1, 1]


def test_new_names_are_renamed(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    safetensors.save_file(VALUES, tmp_path / "model.safetensors")
    milepost.convert(tmp_path / "model.safetensors", tmp_path / "out", convert=JOIN, rename={"": "net"})
    assert milepost.load(str(tmp_path / "out"))["net"]["0.qk.w"].shape == (3, 4)


def test_an_npz_has_names_with_slashes(tmp_path):
    np.savez(tmp_path / "model.npz", **{name.replace(".", "/"): value for name, value in VALUES.items()})
    made = milepost.load(str(tmp_path / "model.npz"), separator="/", convert=JOIN)
    assert {name: value.shape for name, value in made.items()} == {"0/o/w": (2, 2), "0/qk/w": (3, 4)}


def test_members_become_a_dict_and_come_back(tmp_path):
    np.savez(tmp_path / "a.npz", **{f"e/{number}/w": np.full(2, number) for number in range(3)})
    steps = [Stack("e/#/w", "e/w", axis=1)]
    done = milepost.convert(tmp_path / "a.npz", tmp_path / "b.npz", convert=steps)
    assert done.made_of == {"e/w": ["e/0/w", "e/1/w", "e/2/w"]}
    back = milepost.load(str(tmp_path / "b.npz"), separator="/", convert=[Unstack("e/w", "e/#/w", axis=1)])
    assert {name: value.tolist() for name, value in back.items()} == {f"e/{n}/w": [n, n] for n in range(3)}


def test_a_step_that_fits_nothing_names_the_file(tmp_path):
    np.savez(tmp_path / "model.npz", a=np.zeros(2))
    with pytest.raises(KeyNotFoundError) as caught:
        milepost.load(str(tmp_path / "model.npz"), convert=[Transpose("b")])
    assert caught.value.file.endswith("model.npz")


def test_a_state_dict_below_a_name_keeps_its_dict(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    state = {name: torch.tensor(value) for name, value in VALUES.items()}
    torch.save({"model": state, "epoch": 3}, tmp_path / "a.pt")
    steps = [Concatenate(["model.0.q", "model.0.k"], "model.0.qk"), Transpose("model/0/qk/w", "model/0/qk/kernel")]
    made = milepost.load(str(tmp_path / "a.pt"), convert=steps)
    assert made["epoch"] == 3
    assert made["model"].keys() == {"0.o.w", "0.qk.kernel"}
    milepost.convert(tmp_path / "a.pt", tmp_path / "b.pt", convert=steps, separator=".")
    assert torch.load(tmp_path / "b.pt")["model.0.qk.kernel"].shape == (3, 4)


def test_an_epoch_is_no_array(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.save({"model": {"w": torch.zeros(2)}, "epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(UnsupportedError, match="no array of numbers"):
        milepost.load(str(tmp_path / "a.pt"), convert=[Transpose("epoch")])


@pytest.mark.parametrize("kind", ["msgpack", "orbax"])
def test_files_of_flax_and_orbax(tmp_path, kind):
    flax = pytest.importorskip("flax.serialization", reason="Flax is not installed")
    state = {"params": {"q": {"kernel": np.zeros((2, 3), np.float32)}, "k": {"kernel": np.ones((2, 3), np.float32)}}}
    state |= {"opt_state": {"0": {"mu": state["params"]}}}
    path = tmp_path / "state"
    if kind == "msgpack":
        path = tmp_path / "state.msgpack"
        path.write_bytes(flax.to_bytes(state))
    else:
        orbax = pytest.importorskip("orbax.checkpoint", reason="Orbax is not installed")
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(path, state)
    steps = [Transpose("**/q/kernel"), Transpose("**/k/kernel"), Concatenate(["**/q", "**/k"], "**/qk")]
    made = milepost.load(str(path), separator="/", convert=steps)
    assert {name: value.shape for name, value in made.items()} == {
        "params/qk/kernel": (6, 2),
        "opt_state/0/mu/qk/kernel": (6, 2),
    }
    assert made["params/qk/kernel"][:, 0].tolist() == [0, 0, 0, 1, 1, 1]


class TestKeras:
    """Keras finds the variables by their names in the file, so steps give names of the live model."""

    STEPS = (
        *(
            Concatenate([f"layers/dense/vars/{n}", f"layers/dense_1/vars/{n}"], f"new/vars/{n}", axis=-1)
            for n in (0, 1)
        ),
        Reshape("layers/dense_2", old=(-1,), new=(-1,), target="layers/dense_1"),
        Reshape("new", old=(-1,), new=(-1,), target="layers/dense"),
    )

    @staticmethod
    def made(*sizes):
        """Dense layers beside each other, and one behind them."""
        keras = pytest.importorskip("keras", reason="Keras is not installed")
        inputs = keras.Input((4,))
        beside = [keras.layers.Dense(size, name=f"d{number}")(inputs) for number, size in enumerate(sizes)]
        outputs = keras.layers.Dense(2)(keras.layers.Concatenate()(beside) if len(beside) > 1 else beside[0])
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.Adam(0.1), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    @staticmethod
    def output(model):
        return np.array(model.predict_on_batch(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)))

    @pytest.mark.parametrize("name", ["m.weights.h5", "m.keras"])
    def test_layers_that_became_one_are_restored(self, name, tmp_path):
        model, live = self.made(4, 4), self.made(8)
        (model.save_weights if name.endswith("h5") else model.save)(tmp_path / name)
        status = milepost.Checkpoint(live).read(tmp_path / name, convert=self.STEPS, ignore="optimizer")
        status.assert_existing_objects_matched()
        np.testing.assert_allclose(self.output(live), self.output(model), rtol=1e-6)

    @pytest.mark.parametrize("restored", [True, False])
    def test_state_of_the_optimizer_is_refused_even_if_it_would_fit(self, restored, tmp_path):
        model = self.made(4)
        path = str(tmp_path / "m.weights.h5")
        model.save_weights(path)
        steps = [Transpose("layers/dense/vars/0")]
        convert = milepost.Checkpoint(model).read if restored else partial(milepost.convert, target=tmp_path / "m.pt")
        with pytest.raises(UnsupportedError, match="cannot lay out this state of an optimizer") as caught:
            convert(path, convert=steps)
        assert caught.value.key.startswith("optimizer/vars/")
        milepost.convert(path, tmp_path / "m.safetensors", convert=steps, ignore="optimizer")
        before, after = (milepost.load(each, separator="/") for each in (path, tmp_path / "m.safetensors"))
        assert after["layers/dense/vars/0"].tolist() == before["layers/dense/vars/0"].T.tolist()

    def test_a_file_that_has_variables_in_an_order_keeps_its_names(self, tmp_path):
        model, live = self.made(4), self.made(4)
        path = str(tmp_path / "m.h5")
        model.save(path)
        name = next(key for key, _ in milepost.list_variables(path) if key.endswith("d0/kernel"))
        with pytest.raises(UnsupportedError, match="no convert that changes names") as caught:
            milepost.Checkpoint(live).read(path, convert=[Transpose(name, "other")])
        assert caught.value.key == name
        steps = [Transpose(name), Transpose(name)]
        milepost.Checkpoint(live).read(
            path, convert=steps, ignore="optimizer_weights"
        ).assert_existing_objects_matched()
        np.testing.assert_allclose(self.output(live), self.output(model), rtol=1e-6)


def test_a_tensor_in_pieces_is_read_in_boxes(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tests.interop.dcp_directories import in_pieces

    w = torch.arange(24.0).reshape(4, 6)
    path = in_pieces(tmp_path / "dcp", {"a.w": (w, [((0, 2), (0, 6)), ((2, 4), (0, 6))])})
    made = milepost.load(str(path), convert=[Split("a/w", ["a/x", "a/y"], axis=1), Transpose("a/x")])
    assert made["a.x"].tolist() == w[:, :3].T.tolist()
    assert made["a.y"].tolist() == w[:, 3:].tolist()


def test_work_grows_no_faster_than_the_file(tmp_path):
    def load_of(count):
        path = tmp_path / f"{count}.npz"
        np.savez(path, **{f"layers/{number}/{name}/w": np.zeros(2) for number in range(count) for name in "qk"})
        steps = [Concatenate(["layers/*/q", "layers/*/k"], "layers/*/qk")]
        return lambda: milepost.load(str(path), convert=steps)

    few, many = load_of(50), load_of(200)
    few()  # imports
    assert calls_of(many) < 4.5 * calls_of(few)
