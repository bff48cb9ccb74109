"""`milepost.convert`: its arguments, and what it tells."""

import os

import numpy as np
import pytest

import milepost

STATE = {"model": {"l1": {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(3)}}, "epoch": 3, "name": "run"}


@pytest.fixture
def path(tmp_path):
    return milepost.save(tmp_path / "ckpt", STATE)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.npz"])
def test_a_part_under_other_names(path, tmp_path, name):
    """As `test_a_state_dict_goes_into_its_module` does with PyTorch itself."""
    done = milepost.convert(path, tmp_path / name, only="model", rename={"model": ""}, separator=".")
    assert sorted(done.tensors) == ["l1.bias", "l1.weight"]
    assert len(done.unwanted) == 2
    assert list(done.files) == [str(tmp_path / name)]
    assert done.types["l1.weight"] == "float32[2,3]"
    assert done.not_carried_over == ["the object graph"]
    assert not done.left_out
    np.testing.assert_array_equal(milepost.load(tmp_path / name)["l1.weight"], STATE["model"]["l1"]["weight"])


def test_what_the_format_cannot_hold_is_an_error_unless_it_may_be_left_out(path, tmp_path):
    with pytest.raises(milepost.UnsupportedError, match=r"name/\.ATTRIBUTES/VARIABLE_VALUE: text"):
        milepost.convert(path, tmp_path / "a.pt")
    assert not os.path.exists(tmp_path / "a.pt")
    assert list(milepost.convert(path, tmp_path / "a.pt", partial=True).left_out.values()) == ["text"]
    milepost.convert(path, tmp_path / "b.pt", ignore="name")


def test_metadata_is_named(tmp_path):
    manager = milepost.CheckpointManager(milepost.Checkpoint(v=np.ones(2)), tmp_path / "run", max_to_keep=1)
    manager.save(metrics={"loss": 0.5})
    done = milepost.convert(tmp_path / "run", tmp_path / "a.npz")
    assert list(done.not_carried_over) == ["the object graph", "metrics and metadata"]


def test_slot_variables_keep_their_names(tmp_path):
    class Optimizer(milepost.SlotOwner):
        pass

    v, optimizer = milepost.Variable(np.zeros(2)), Optimizer()
    optimizer.add_slot(v, "m")
    path = milepost.Checkpoint(v=v, optimizer=optimizer).write(tmp_path / "ckpt")
    done = milepost.convert(path, tmp_path / "a.safetensors")
    assert "v/.OPTIMIZER_SLOT/optimizer/m" in done.tensors
    done = milepost.convert(path, tmp_path / "b.safetensors", rename={"v": "w", "optimizer": "o"})
    assert "w/.OPTIMIZER_SLOT/o/m" in done.tensors
    done = milepost.convert(path, tmp_path / "c.safetensors", only="v")
    assert list(done.tensors) == ["v"]


def test_only_takes_saved_and_new_names(path, tmp_path):
    for number, name in enumerate(["model/l1", "l2", "model.l1"]):
        done = milepost.convert(path, tmp_path / f"{number}.npz", only=name, rename={"model/l1": "l2"})
        assert sorted(done.tensors) == ["l2/bias", "l2/weight"]
    for number, name in enumerate(["model/l1/bias", "l2/bias"]):
        done = milepost.convert(path, tmp_path / f"i{number}.npz", ignore=[name, "name"], rename={"model/l1": "l2"})
        assert sorted(done.tensors) == ["epoch", "l2/weight"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"format": "tar"},
        {"separator": "-"},
        {"dtype": "int8"},
        {"dtype": "text"},
        {"max_shard_size": 0},
        {"max_shard_size": "5GB"},
        {"format": "npz", "max_shard_size": 5},
        {"format": "checkpoint", "dtype": "float16"},
        {"format": "checkpoint", "separator": "."},
    ],
)
def test_wrong_arguments(path, tmp_path, arguments):
    with pytest.raises(milepost.UnsupportedError):
        milepost.convert(path, tmp_path / "a.safetensors", partial=True, **arguments)
    assert not os.path.exists(tmp_path / "a.safetensors")


def test_an_element_type_of_a_library_is_one(path, tmp_path):
    done = milepost.convert(path, tmp_path / "a.safetensors", only="model", dtype=milepost.adapters.DType.of("float16"))
    assert set(done.types.values()) == {"float16[2,3]", "float16[3]"}
    done = milepost.convert(path, tmp_path / "b.safetensors", only="model", dtype=np.float64)
    assert set(done.types.values()) == {"float64[2,3]", "float64[3]"}


def test_what_is_there_stays(path, tmp_path):
    (tmp_path / "a.pt").write_text("mine")
    with pytest.raises(milepost.CheckpointExistsError):
        milepost.convert(path, tmp_path / "a.pt", only="model")
    assert (tmp_path / "a.pt").read_text() == "mine"
    milepost.convert(path, tmp_path / "a.pt", only="model", overwrite=True)
    assert (tmp_path / "a.pt").read_bytes()[:2] == b"PK"


def test_an_ending_of_no_format_is_an_error_that_names_the_near_one(path, tmp_path):
    with pytest.raises(milepost.UnsupportedError, match=r"if \.safetensors is meant.*format='checkpoint'") as caught:
        milepost.convert(path, tmp_path / "a.safetensor")
    assert caught.value.file == str(tmp_path / "a.safetensor")
    assert milepost.convert(path, tmp_path / "a.safetensor", format="npz", partial=True).format == "npz"


def test_progress_is_told(path, tmp_path):
    told = []
    milepost.convert(path, tmp_path / "a.pt", only="model", options=milepost.CheckpointOptions(progress=told.append))
    assert (told[0].operation, told[-1].bytes_done) == ("convert", told[-1].bytes_total)


def test_from_a_storage(tmp_path):
    storage = milepost.storage.MemoryStorage()
    milepost.save("run/ckpt", {"a": np.ones(2)}, milepost.CheckpointOptions(storage=storage))
    milepost.convert("run/ckpt", tmp_path / "a.npz", options=milepost.CheckpointOptions(storage=storage))
    np.testing.assert_array_equal(milepost.load(tmp_path / "a.npz")["a"], np.ones(2))


def test_no_directory_is_a_storage_error(path, tmp_path):
    for form in ("torch", "npz", "orbax"):
        with pytest.raises(milepost.StorageError, match="cannot write"):
            milepost.convert(path, tmp_path / "missing" / "target", format=form, partial=True)


NOT_ARRAYS = {"none": None, "list": [], "below": [{"dict": {}}, 1]}


def test_what_no_array_can_hold_is_named(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(2)} | NOT_ARRAYS, tmp_path / "a.pt")
    (named,) = milepost.convert(tmp_path / "a.pt", tmp_path / "a.safetensors").not_carried_over
    assert named.endswith(": below/0/dict, list, none")
    (named,) = milepost.convert(tmp_path / "a.pt", tmp_path / "b.npz", ignore=["below", "none"]).not_carried_over
    assert named.endswith(": list")


def test_none_in_a_checkpoint_is_named_and_no_array(tmp_path):
    path = milepost.save(tmp_path / "state", {"w": np.ones(2), "best": None, "empty": np.zeros(0, bool)})
    done = milepost.convert(path, tmp_path / "a.npz")
    assert done.not_carried_over == ["the object graph", "what no array can hold, such as None: best"]
    assert sorted(milepost.load(tmp_path / "a.npz")) == ["empty", "w"]
    milepost.convert(path, tmp_path / "again")
    assert milepost.load(tmp_path / "again")["best"] is None


def test_a_checkpoint_has_what_no_array_can_hold(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(2)} | NOT_ARRAYS, tmp_path / "a.pt")
    assert not milepost.convert(tmp_path / "a.pt", tmp_path / "a").not_carried_over
    restored = milepost.load(tmp_path / "a")
    assert {name: restored[name] for name in NOT_ARRAYS} == NOT_ARRAYS


@pytest.mark.parametrize("target", ["b.npz", "b"])
def test_a_byte_order_that_a_file_does_not_keep_is_named(tmp_path, target):
    np.savez(tmp_path / "a.npz", big=np.arange(3, dtype=">i2"), little=np.arange(3, dtype="<i2"))
    done = milepost.convert(tmp_path / "a.npz", tmp_path / target)
    assert done.not_carried_over == ["the byte order of arrays, which get that of this machine: big"]
    assert milepost.load(tmp_path / target)["big"].tolist() == [0, 1, 2]


def test_the_byte_order_of_a_checkpoint_is_kept_in_a_checkpoint_alone(tmp_path):
    path = milepost.save(tmp_path / "a", {"big": np.arange(3, dtype=">i2"), "text": np.array(["a"])})
    assert milepost.convert(path, tmp_path / "b", only="big").not_carried_over == []
    assert milepost.load(tmp_path / "b")["big"].dtype.str == ">i2"
    done = milepost.convert(path, tmp_path / "b.npz", only="big")
    assert done.not_carried_over[-1] == "the byte order of arrays, which get that of this machine: big"


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[ns]"])
def test_dates_and_durations_go_to_npz(tmp_path, dtype):
    array = np.arange(3).astype(dtype)
    milepost.convert(milepost.save(tmp_path / "a", {"when": array}), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        assert found["when"].dtype == array.dtype
        assert found["when"].tolist() == array.tolist()
