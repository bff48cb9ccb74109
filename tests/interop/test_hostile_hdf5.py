"""HDF5 files that someone made to do harm, or that are damaged."""

import os
import zlib
from contextlib import suppress

import numpy as np
import pytest

import milepost
from milepost import CorruptCheckpointError, MilepostError, UnsupportedError

h5py = pytest.importorskip("h5py")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.weights.h5"


def external_link(file):
    file["a"] = h5py.ExternalLink("other.h5", "/secret")


def soft_link(file):
    file["a"] = h5py.SoftLink("/good")


def external_storage(file):
    file.create_dataset("a", (8,), "u1", external=[("/etc/hostname", 0, 8)])


def virtual(file):
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "secret", (4,))
    file.create_virtual_dataset("a", layout)


def itself(file):
    file["group/again"] = file.create_group("group")


def huge_shape(file):
    file.create_dataset("a", (1 << 40,), "f8", chunks=(1 << 10,))


def huge_chunk(file):
    file.create_dataset("a", (4,), "u1", maxshape=(None,), chunks=(1 << 28,))


def bomb(file):
    dataset = file.create_dataset("a", (1 << 31,), "u1", chunks=(1 << 30,), compression="gzip")
    assert dataset.id.get_storage_size() == 0


def never_written(file):
    plain = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((1 << 40,)), plain)


def text(file):
    file["a"] = "text"


def reference(file):
    file["a"] = np.array([file.ref], h5py.ref_dtype)


def null(file):
    file["a"] = h5py.Empty("f4")


def a_type(file):
    file["a"] = np.dtype("f4")


HOSTILE = (
    *(external_link, soft_link, external_storage, virtual, itself, huge_shape, huge_chunk, bomb),
    *(never_written, text, reference, null, a_type),
)


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_is_refused_with_its_key(path, make):
    with h5py.File(path, "w") as file:
        file["good"] = np.ones(2)
        make(file)
    with pytest.raises((UnsupportedError, CorruptCheckpointError)) as caught:
        milepost.load(path)
    assert caught.value.file == str(path)
    assert caught.value.key in ("a", "group/again")


def test_a_compressed_bomb_is_refused(path):
    """Its chunks are real and small, and its shape claims what gzip cannot reach."""
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("a", (1 << 33,), "u1", chunks=(1 << 20,), compression="gzip")
        dataset.id.write_direct_chunk((0,), zlib.compress(bytes(1 << 20)))
    with pytest.raises(UnsupportedError, match="far more memory"):
        milepost.load(path)


def test_compression_is_read(path):
    values = np.arange(5000.0).reshape(50, 100)
    with h5py.File(path, "w") as file:
        for name, options in (
            ("gzip", {"compression": "gzip", "shuffle": True}),
            ("lzf", {"compression": "lzf"}),
            ("sums", {"fletcher32": True}),
            ("plain", {}),
            ("chunks", {"chunks": (7, 9)}),
        ):
            file.create_dataset(name, data=values, **options)
        file.create_dataset("big_endian", data=values.astype(">f8"))
    found = milepost.load(path)
    for each in found.values():
        np.testing.assert_array_equal(each, values)
    assert milepost.load_checkpoint(path).verify() is None


def test_a_wrong_checksum_of_a_chunk_is_damage(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.full(1000, 7, np.uint8), fletcher32=True)
    data = bytearray(path.read_bytes())
    at = data.index(bytes([7]) * 1000)
    data[at + 5] = 8
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpointError):
        milepost.load(path)


def test_a_missing_filter_is_named(path):
    with h5py.File(path, "w") as file:
        plain = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plain.set_chunk((4,))
        plain.set_filter(4321, h5py.h5z.FLAG_OPTIONAL, ())
        h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((4,)), plain)
    with pytest.raises(UnsupportedError, match="the filter 4321"):
        milepost.load(path)


def test_a_weight_that_is_listed_and_not_there_is_damage(path):
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = ["a"]
        file.create_group("a").attrs["weight_names"] = ["kernel:0", "../../b"]
        file["a/kernel:0"] = np.ones(2)
    with pytest.raises(CorruptCheckpointError, match="lists a weight"):
        milepost.load(path)


def test_damage_at_any_place_is_an_error_of_milepost(path):
    """Cut off anywhere, and with bytes changed: milepost's errors, or the values."""
    with h5py.File(path, "w") as file:
        file["layers/a/vars/0"] = np.arange(9.0)
        file.create_dataset("layers/b/vars/0", data=np.arange(99.0), compression="gzip")
        file.attrs["layer_names"] = ["layers"]
    data = path.read_bytes()
    random = np.random.default_rng(0)
    for length in random.integers(9, len(data), 60):
        path.write_bytes(data[:length])
        with pytest.raises(MilepostError):
            milepost.load(path)
    for place in random.integers(8, len(data), 200):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with suppress(MilepostError):
            milepost.load(path)


def test_many_levels_are_refused(path):
    with h5py.File(path, "w") as file:
        file["/".join(["a"] * 200)] = np.ones(1)
    with pytest.raises(UnsupportedError, match="levels"):
        milepost.load(path)


def test_nothing_is_executed_or_opened_elsewhere(path, monkeypatch):
    with h5py.File(path, "w") as file:
        file["a"] = h5py.ExternalLink("/etc/hostname", "/")
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda name, *more, **how: opened.append(os.fspath(name)) or real(name, *more, **how)
    )
    with pytest.raises(UnsupportedError, match="ExternalLink"):
        milepost.load(path)
    assert "/etc/hostname" not in opened
