"""`CheckpointOptions.cast`: floating-point numbers are saved as another element type."""

import ml_dtypes
import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, MismatchError, UnsupportedError, Variable


def numbers(seed=0):
    rows = np.random.default_rng(seed).normal(size=(3, 4)).astype(np.float32)
    return Checkpoint(model=Checkpoint(w=Variable(rows), b=rows[0].astype(np.float64)), n=np.arange(3), rate=0.5)


def types(path):
    return {name: str(spec) for name, spec in milepost.load_checkpoint(path).get_variable_to_dtype_map().items()}


@pytest.mark.parametrize("is_async", [False, True])
def test_all_floating_point_arrays_are_saved_as_the_type(tmp_path, is_async):
    checkpoint = numbers()
    path = checkpoint.write(tmp_path / "ckpt", CheckpointOptions(cast="bfloat16", enable_async=is_async))
    checkpoint.sync()
    loaded = milepost.load(path)
    assert loaded["model"]["w"].dtype == loaded["model"]["b"].dtype == ml_dtypes.bfloat16
    assert loaded["n"].dtype == np.int64
    assert loaded["rate"] == 0.5
    assert (loaded["model"]["w"] == checkpoint.model.w.numpy().astype(ml_dtypes.bfloat16)).all()


def test_names_say_which_values_get_which_type(tmp_path):
    path = numbers().write(
        tmp_path / "ckpt", CheckpointOptions(cast={"model": np.float16, "*b": "bfloat16", "model.b": "float32"})
    )
    loaded = milepost.load(path)["model"]
    assert (loaded["w"].dtype, loaded["b"].dtype) == (np.float16, np.float32)


def test_it_is_restored_into_the_original_type_by_cast(tmp_path):
    saved, live = numbers(0), numbers(1)
    path = saved.write(tmp_path / "ckpt", CheckpointOptions(cast="float16"))
    with pytest.raises(MismatchError):
        numbers(1).read(path)
    live.read(path, cast=True).assert_consumed()
    assert live.model.w.dtype == np.float32
    np.testing.assert_array_equal(live.model.w.numpy(), saved.model.w.numpy().astype(np.float16))


def test_a_number_that_the_type_cannot_hold_fails_the_save(tmp_path):
    checkpoint = Checkpoint(w=np.array([1.0, 1e30]))
    with pytest.raises(MismatchError, match="nothing was saved") as caught:
        checkpoint.write(tmp_path / "ckpt", CheckpointOptions(cast="float16"))
    assert caught.value.key == "w/.ATTRIBUTES/VARIABLE_VALUE"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cast", ["int8", 3, {"w": "text"}, {3: "float16"}, {"": "float16"}])
def test_another_cast_is_refused(cast):
    with pytest.raises(UnsupportedError) as caught:
        CheckpointOptions(cast=cast)
    assert caught.value.key == "cast"


def test_a_tree_and_weights_are_cast_too(tmp_path):
    path = milepost.save(tmp_path / "tree", {"a": np.ones(2), "b": [np.ones(())]}, CheckpointOptions(cast="float16"))
    loaded = milepost.load(path)
    assert loaded["a"].dtype == loaded["b"][0].dtype == np.float16


def test_an_incremental_save_links_what_is_equal_after_the_conversion(tmp_path):
    checkpoint = Checkpoint(w=np.random.default_rng(0).normal(size=100_000))
    options = CheckpointOptions(cast="float16", incremental=True)
    first = checkpoint.save(tmp_path / "ckpt", options)
    second = checkpoint.save(tmp_path / "ckpt", options)
    shared = {each.stat().st_ino for each in tmp_path.iterdir() if each.name.startswith("ckpt-1.data")}
    assert shared & {each.stat().st_ino for each in tmp_path.iterdir() if each.name.startswith("ckpt-2.data")}
    np.testing.assert_array_equal(milepost.load(first)["w"], milepost.load(second)["w"])


def test_a_model_of_pytorch_with_its_optimizer(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    checkpoint = Checkpoint(model=model, optimizer=optimizer)
    path = checkpoint.write(tmp_path / "ckpt", CheckpointOptions(cast={"model": torch.bfloat16}))
    dtypes = milepost.load_checkpoint(path).get_variable_to_dtype_map()
    assert dtypes["model/weight/.ATTRIBUTES/VARIABLE_VALUE"].name == "bfloat16"
    assert dtypes["model/weight/.OPTIMIZER_SLOT/optimizer/exp_avg/.ATTRIBUTES/VARIABLE_VALUE"].name == "float32"
    checkpoint.read(path, cast=True).assert_consumed()


def test_keras_and_tensorflow_variables(tmp_path):
    tf = pytest.importorskip("tensorflow")
    checkpoint = Checkpoint(v=tf.Variable([1.5, 2.0]), n=tf.Variable(3))
    path = checkpoint.write(tmp_path / "ckpt", CheckpointOptions(cast="float16"))
    assert {name: str(array.dtype) for name, array in milepost.load(path).items() if name != "save_counter"} == {
        "v": "float16",
        "n": "int32",
    }
