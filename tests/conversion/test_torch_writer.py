"""Files of PyTorch that milepost writes, with names and shapes of all kinds."""

import tempfile
import zipfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

import milepost
from milepost.conversion import torch_writer

torch = pytest.importorskip("torch")
NAMES = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=20)
DTYPES = st.sampled_from([np.float32, np.float16, np.int64, np.uint8, np.bool_, np.complex64, np.uint32, np.int8])


@given(
    st.dictionaries(
        NAMES,
        DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0))),
        max_size=6,
    )
)
def test_pytorch_and_milepost_read_what_is_written(state):
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "source.pt"), Path(directory, "target.pt")
        torch.save({name: torch.from_numpy(each.copy()) for name, each in state.items()}, source)
        done = milepost.convert(source, target)
        found = torch.load(target, weights_only=True)
        assert set(found) == set(state) == set(done.tensors)
        ours = milepost.load(target)
        for name, each in state.items():
            assert found[name].numpy().dtype == each.dtype
            assert found[name].shape == each.shape
            assert found[name].numpy().tobytes() == each.tobytes() == ours[name].tobytes()


def test_records_of_more_than_4_gigabytes_have_the_fields_of_zip64(tmp_path, monkeypatch):
    """The same code writes them, with the limit at which zip64 begins."""
    monkeypatch.setattr(torch_writer, "_LARGE", 100)
    path = milepost.save(tmp_path / "ckpt", {"small": np.ones(2), "large": np.arange(1000)})
    milepost.convert(path, tmp_path / "a.pt")
    for mapped in (False, True):
        assert torch.load(tmp_path / "a.pt", weights_only=True, mmap=mapped)["large"].tolist() == list(range(1000))
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        assert archive.testzip() is None
    assert milepost.load(tmp_path / "a.pt")["large"][-1] == 999


def test_a_state_dict_goes_into_its_module(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    path = milepost.Checkpoint(net=net, optimizer=torch.optim.Adam(net.parameters())).write(tmp_path / "ckpt")
    milepost.convert(path, tmp_path / "net.pt", only="net", rename={"net": ""}, separator=".")
    fresh = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    fresh.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    assert torch.equal(fresh[0].weight, net[0].weight)


def test_nested_dicts_become_parts_of_names(tmp_path):
    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "source.pt")
    milepost.convert(tmp_path / "source.pt", tmp_path / "flat.pt")
    milepost.convert(tmp_path / "source.pt", tmp_path / "model.pt", only=["model"], rename={"model": ""})
    assert set(torch.load(tmp_path / "flat.pt")) == {"model/w"}
    assert set(torch.load(tmp_path / "model.pt")) == {"w"}
