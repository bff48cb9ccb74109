"""Files of `numpy.savez`: read, restored, and refused where they would do harm."""

import io
import struct
import tracemalloc
import zipfile
from contextlib import nullcontext, suppress

import ml_dtypes
import numpy as np
import pytest

import milepost
from milepost import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.conversion import npy

VALUES = {
    "net/w": np.arange(6.0).reshape(2, 3),
    "net/columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big_endian": np.arange(5, dtype=">i4"),
    "empty": np.zeros((0, 2), np.float16),
    "scalar": np.array(2.5, np.float32),
    "complex": np.array([1 + 2j]),
    "bool": np.array([True, False]),
    "text": np.array(["a", "bé"]),
    "large": np.arange(1 << 18, dtype=np.int64),
}


@pytest.fixture(params=[np.savez, np.savez_compressed], ids=["stored", "compressed"])
def path(request, tmp_path):
    request.param(tmp_path / "a.npz", **VALUES)
    return tmp_path / "a.npz"


def test_arrays_come_back(path):
    found = milepost.load(path)
    assert set(found) == {"net", "big_endian", "empty", "scalar", "complex", "bool", "text", "large"}
    flat = {**found, **{f"net/{name}": each for name, each in found["net"].items()}}
    for name, expected in VALUES.items():
        if name != "text":
            np.testing.assert_array_equal(flat[name], expected)
            assert flat[name].dtype == expected.dtype.newbyteorder("=")
    assert found["text"].tolist() == [b"a", "bé".encode()]
    milepost.load_checkpoint(path).verify()


def test_restored_into_objects(path):
    live = milepost.Checkpoint(net=milepost.Module(), large=milepost.Variable(np.zeros(1 << 18, np.int64)))
    live.net.w = milepost.Variable(np.zeros((2, 3)))
    live.restore(path).expect_partial().assert_existing_objects_matched()
    np.testing.assert_array_equal(live.net.w.numpy(), VALUES["net/w"])
    np.testing.assert_array_equal(live.large.numpy(), VALUES["large"])


def test_a_name_above_another_keeps_both(tmp_path):
    np.savez(tmp_path / "a.npz", **{"a": np.ones(1), "a/b": np.zeros(1)})
    assert sorted(milepost.load(tmp_path / "a.npz")) == ["a", "a/b"]


@pytest.mark.parametrize(
    ("names", "is_nested"),
    [
        (["a/b/c", "a/b/d", "a/e", "f"], True),
        (["a/b", "a"], False),
        (["a", "a/b"], False),
        (["a/b/c", "a/b"], False),
        (["a/b", "a/b/c"], False),
        (["/a", "b"], False),
        (["a//b"], False),
        (["a/"], False),
        (["/"], False),
        (["", "a/b"], False),
    ],
)
def test_names_are_levels_if_each_array_can_have_its_place(tmp_path, names, is_nested):
    saved = {name: np.array(number) for number, name in enumerate(names)}
    np.savez(tmp_path / "a.npz", **saved)
    assert milepost.list_variables(tmp_path / "a.npz") == sorted((name, []) for name in names)
    found = milepost.load(tmp_path / "a.npz")
    assert (set(found) == {name.partition("/")[0] for name in names}) == is_nested
    if not is_nested:
        assert found == saved


def test_objects_are_named_and_never_made(tmp_path):
    np.savez(tmp_path / "a.npz", good=np.ones(1), bad=np.array([{}], object))
    assert milepost.load_checkpoint(tmp_path / "a.npz").objects() == {"bad": "numpy.ndarray of objects"}
    with pytest.raises(UnsupportedError, match="key: bad"):
        milepost.load(tmp_path / "a.npz")
    assert list(milepost.load(tmp_path / "a.npz", ignore="bad")) == ["good"]


def test_the_remedy_for_objects_loads_them(tmp_path):
    np.savez(tmp_path / "a.npz", good=np.ones(1), bad=np.array([{}], object))
    with pytest.raises(milepost.UnsupportedError) as caught:
        milepost.load_checkpoint(tmp_path / "a.npz").get_tensor("bad")
    assert "numpy.load(path, allow_pickle=True)" in str(caught.value)
    assert "torch" not in str(caught.value)
    assert np.load(tmp_path / "a.npz", allow_pickle=True)["bad"][0] == {}


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.zeros(2, "V0"), "|V0"),
        (np.zeros(2, [("x", "V0")]), "[('x', 'V')]"),
    ],
)
def test_arrays_of_other_types_are_named_and_the_rest_is_read(tmp_path, array, kind):
    np.savez(tmp_path / "a.npz", good=np.ones(1), other=array)
    reader = milepost.load_checkpoint(tmp_path / "a.npz")
    assert reader.objects() == {"other": f"numpy.ndarray of {kind}"}
    assert reader.get_tensor("good") == 1
    with pytest.raises(UnsupportedError, match="element type of NumPy") as caught:
        reader.get_tensor("other")
    assert caught.value.found == kind
    assert "save a view of the array" in caught.value.remedy
    with pytest.raises(UnsupportedError, match="element type of NumPy"):
        milepost.load(tmp_path / "a.npz")
    assert set(milepost.load(tmp_path / "a.npz", ignore="other")) == {"good"}


def test_the_remedy_for_arrays_of_other_types_loads_them(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.full(2, 1.5, ml_dtypes.bfloat16))
    loaded = np.load(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", w=loaded["w"].view(np.uint16))
    restored = milepost.load(tmp_path / "b.npz")["w"].view(ml_dtypes.bfloat16)
    assert restored.tolist() == [1.5, 1.5]


def test_an_archive_of_nothing_is_one_by_its_name(tmp_path):
    np.savez(tmp_path / "a.npz")
    assert milepost.load(tmp_path / "a.npz") == {}
    milepost.load_checkpoint(tmp_path / "a.npz").verify()
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.npz").read_bytes())
    with pytest.raises(UnsupportedError, match="an empty zip archive"):
        milepost.load(tmp_path / "a.zip")


@pytest.mark.parametrize("name", ["objects", "text"])
def test_verify_compares_checksums_of_what_is_no_tensor(tmp_path, name):
    values = {"objects": np.array(["first", "second"], object), "text": np.array(["first", "second"], "S9")}
    np.savez(tmp_path / "a.npz", **values)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        content = archive.read(f"{name}.npy")
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(content) + content.index(b"second")] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="wrong checksum"):
        milepost.load_checkpoint(tmp_path / "a.npz").verify()


def test_damaged_text_is_not_read(tmp_path):
    np.savez(tmp_path / "a.npz", text=np.array(["first", "second"], "S9"))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[data.index(b"second")] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="wrong checksum"):
        milepost.load(tmp_path / "a.npz")


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("character", [0x110000, 0xFFFFFFFF])
def test_a_character_that_is_none_is_damage(tmp_path, order, character):
    """NumPy would raise a SystemError."""
    text = np.array(["ab", "c"], f"{order}U2")
    text.view(f"{order}u4")[1] = character
    np.savez(tmp_path / "a.npz", text=text)
    with pytest.raises(CorruptCheckpointError, match="a character"):
        milepost.load(tmp_path / "a.npz")


def test_a_wrong_checksum_is_damage(path):
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        record = archive.getinfo("large.npy")
    data[record.header_offset + 5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="damaged"):
        milepost.load_variable(path, "large")


def test_a_cut_off_file_is_damage(path):
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(CorruptCheckpointError, match="npz file is cut off"):
        milepost.load(path)


def archive_of(data, method=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("a.npy", data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        npy.header(np.dtype("f8"), (1 << 50,)) + bytes(80),
        npy.header(np.dtype("f8"), (10,)) + bytes(8),
        b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31) + bytes(100),
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 100) + b"(" * 100,
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 20) + b"__import__('os')    ",
        b"\x93NUMPY\x01\x00" + struct.pack("<H", 60) + b"{'descr':'<f8','shape':(-1,),'fortran_order':False}".ljust(60),
        b"no array",
        b"",
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hostile_headers_are_refused(tmp_path, data, method):
    (tmp_path / "a.npz").write_bytes(archive_of(data, method))
    with pytest.raises(CorruptCheckpointError, match="npy"):
        milepost.load(tmp_path / "a.npz")


def test_a_bomb_is_refused(tmp_path):
    """The directory of the archive claims more than Deflate can make of its bytes."""
    data = bytearray(archive_of(npy.header(np.dtype("u1"), (1 << 31,)) + bytes(100), zipfile.ZIP_DEFLATED))
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", (1 << 31) + 128)
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match="compressed bytes"):
        milepost.load(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("text", "shape", "data"),
    [("<U0", (100_000_000,), b""), ("|S0", (1 << 50,), b""), ("|S1", (20_000_000,), bytes(20_000_000))],
    ids=["U0", "S0", "S1 zeros"],
)
def test_text_that_its_bytes_cannot_stand_for_is_refused_before_it_is_made(tmp_path, text, shape, data):
    header = repr({"descr": text, "fortran_order": False, "shape": shape}).encode() + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data
    (tmp_path / "a.npz").write_bytes(archive_of(array, zipfile.ZIP_DEFLATED))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptCheckpointError, match="text would take more memory"):
            milepost.list_variables(str(tmp_path / "a.npz"))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_many_arrays_of_text_have_no_more_room_together_than_one(tmp_path):
    header = repr({"descr": "<U0", "fortran_order": False, "shape": (400_000,)}).encode() + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    for count, is_refused in ((2, False), (6, True)):
        path = tmp_path / f"{count}.npz"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(count):
                archive.writestr(f"{number}.npy", array)
        with pytest.raises(CorruptCheckpointError, match="text would take") if is_refused else nullcontext():
            milepost.list_variables(str(path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_usual_text_is_read(tmp_path, save):
    labels = np.array([f"class {number % 1000}" for number in range(200_000)])
    save(tmp_path / "a.npz", labels=labels)
    found = milepost.load(str(tmp_path / "a.npz"))["labels"]
    assert [found[0], found[-1]] == [b"class 0", b"class 999"]


def test_damage_at_any_place_is_an_error_of_milepost(path):
    data = path.read_bytes()
    random = np.random.default_rng(0)
    for place in [*random.integers(0, 2000, 100), *random.integers(len(data) - 900, len(data), 100)]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with suppress(MilepostError):
            milepost.load(path)


@pytest.mark.parametrize("name", ["w", "w/value"])
@pytest.mark.parametrize("argument", ["only", "ignore"])
def test_the_level_below_a_variable_of_nnx_may_be_in_a_name(tmp_path, argument, name):
    np.savez(tmp_path / "m.npz", **{"w/value": np.ones(2), "b/value": np.ones(2)})
    live = milepost.Checkpoint(w=milepost.Variable(np.zeros(2)), b=milepost.Variable(np.zeros(2)))
    status = live.read(str(tmp_path / "m.npz"), **{argument: name})
    status.assert_consumed().assert_existing_objects_matched()
    assert [float(each[0]) for each in (live.w, live.b)] == ([1, 0] if argument == "only" else [0, 1])
