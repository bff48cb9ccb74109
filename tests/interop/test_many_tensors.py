"""Files of PyTorch with many tensors: each is what PyTorch reads, limits are met at the same tensor, and a bad storage is refused."""

import io
import zipfile
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import MilepostError
from milepost.foreign.pytorch import pickled
from milepost.foreign.pytorch.archive import TorchArchive
from milepost.foreign.pytorch.pickled import PickledData
from milepost.foreign.pytorch.tensors import strides_of
from milepost.foreign.zip_directory import Archive
from milepost.storage.default import DEFAULT_STORAGE

torch = pytest.importorskip("torch")

SHARED = torch.ones(4)
MEMBERS = {
    "plain": lambda: torch.ones(2, 3),
    "of another type": lambda: torch.ones(3, dtype=torch.bfloat16),
    "of one element": lambda: torch.tensor(3),
    "of no elements": lambda: torch.ones(0, 2),
    "of four dimensions": lambda: torch.ones(1, 2, 3, 4),
    "long": lambda: torch.ones(70_000, dtype=torch.bool),
    "part of a storage": lambda: torch.arange(24.0)[4:8],
    "another part": lambda: torch.arange(24.0)[8:12],
    "shared": lambda: SHARED,
    "transposed": lambda: torch.arange(24.0).view(4, 6).t(),
    "repeated": lambda: torch.ones(1).expand(5),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
}


def opened(path):
    """What a file of PyTorch holds; or the error that it is refused with."""
    file = DEFAULT_STORAGE.open(str(path))
    try:
        archive = TorchArchive(Archive(file))
    except MilepostError as error:
        return error
    archive.close()
    return archive.tree


def saved(state, path, change=lambda name, data: (name, data)):
    """A file of PyTorch whose records are changed on the way."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            changed = change(name, source.read(name))
            if changed is not None:
                target.writestr(*changed)
    return path


def of_torch(tensors):
    """Element types, shapes, first bytes, strides, and which tensors share their storages."""
    storages = {}
    return [
        (
            str(tensor.dtype).removeprefix("torch."),
            tuple(tensor.shape),
            tensor.storage_offset() * tensor.element_size() if tensor.numel() else 0,
            None if tensor.numel() == 0 or tensor.is_contiguous() else tensor.stride(),
            storages.setdefault(tensor.untyped_storage()._cdata, len(storages)),
        )
        for tensor in tensors.values()
    ]


def of_file(tensors):
    """The same of tensors in a file."""
    storages = {}
    return [
        (
            tensor.spec.dtype.name,
            tensor.spec.shape,
            tensor.place.offset,
            strides_of(tensor),
            storages.setdefault(tensor.place.storage.key, len(storages)),
        )
        for tensor in tensors.values()
    ]


@given(st.lists(st.sampled_from([*MEMBERS]), min_size=2, max_size=12))
def test_many_tensors_are_what_pytorch_reads(tmp_path_factory, kinds):
    path = tmp_path_factory.mktemp("torch") / "state.pt"
    saved({f"w{place}": MEMBERS[kind]() for place, kind in enumerate(kinds)}, path)
    expected, found = torch.load(path, weights_only=True), opened(path)
    assert [*found] == [*expected]
    assert of_file(found) == of_torch(expected)


def test_more_tensors_than_python_writes_together_are_read(tmp_path):
    path = saved({f"w{place:04}": torch.zeros(2, place % 7) for place in range(3000)}, tmp_path / "long.pt")
    assert of_file(opened(path)) == of_torch(torch.load(path, weights_only=True))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda name, data: None if name.endswith("/data/5") else (name, data), "missing or cut off"),
        (lambda name, data: (name, data[:4]) if name.endswith("/data/5") else (name, data), "missing or cut off"),
    ],
    ids=["no record", "short record"],
)
def test_a_file_with_a_bad_storage_is_refused(tmp_path, harm, said):
    path = saved({f"w{place}": torch.ones(2, 2) for place in range(9)}, tmp_path / "a.pt", harm)
    assert said in opened(path).problem


def test_storages_of_an_unknown_class_are_not_read(tmp_path):
    path = saved(
        {f"w{place}": torch.ones(2, 2) for place in range(9)},
        tmp_path / "a.pt",
        lambda name, data: (name, data.replace(b"FloatStorage", b"FleetStorage")),
    )
    assert {str(each.arguments[0]) for each in opened(path).values()} == {"torch.FleetStorage"}


def same(value):
    """Stands for a name, and for a storage."""
    return value


def together(*values):
    """Stands for the result of a call."""
    return values


@pytest.mark.parametrize(("limit", "made"), [("_MOST_MADE", 7), ("_MOST_MEMO", 8)])
def test_each_tensor_counts_towards_a_limit(limit, made):
    def fewest(count):
        """The lowest limit under which some tensors are read, if the length of the stream is not to matter."""
        buffer = io.BytesIO()
        torch.save({f"w{place}": torch.zeros(2, 2) for place in range(count)}, buffer)
        with zipfile.ZipFile(buffer) as archive:
            data = archive.read("archive/data.pkl")

        def is_read(most):
            with patch.object(pickled, limit, most):
                stream = PickledData(data, same, together, together, same, bytes_each=1 << 30)
            try:
                return bool(stream.read())
            except MilepostError:
                return False

        return next(most for most in range(2000) if is_read(most))

    assert fewest(16) - fewest(8) == 8 * made
