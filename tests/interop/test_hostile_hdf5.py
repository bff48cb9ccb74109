"""HDF5 files that someone made to do harm, or that are damaged."""

import os
import subprocess
import sys
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


OPEN = """
import resource, sys
import milepost

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    with milepost.load_checkpoint(sys.argv[1]) as reader:
        print([reader.get_tensor(key).shape for key in reader.keys()])
except milepost.CorruptCheckpointError as error:
    print(error)
"""


def opened(path):
    """What a process says that opens the file. HDF5 may not end in it, or take all memory."""
    done = subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


class TestStructuresWithWhichTheLibraryDoesNotEnd:
    """A file as Keras writes them, in which one number is wrong."""

    @pytest.fixture
    def path(self, path):
        with h5py.File(path, "w") as file:
            file.attrs["layer_names"] = ["dense"]
            group = file.create_group("dense")
            group.attrs["weight_names"] = ["kernel:0"]
            group["kernel:0"] = np.ones((2, 3), np.float32)
            for place in range(20):  # more than one block of messages
                group["kernel:0"].attrs[f"note {place}"] = "text" * place
            file["removed"] = np.ones(3)
            del file["removed"]  # the heap of names has free space
        return path

    def changed(self, path, position, number, width=8):
        data = bytearray(path.read_bytes())
        data[position : position + width] = number.to_bytes(width, "little")
        path.write_bytes(data)
        return opened(path)

    def position_of_kernel(self, path):
        with h5py.File(path) as file:
            return h5py.h5o.get_info(file["dense/kernel:0"].id).addr

    def next_block(self, path):
        """The position of the message of the kernel's header that says where its second block is."""
        data, start = path.read_bytes(), self.position_of_kernel(path)
        assert data[start] == 1
        place, end = start + 16, start + 16 + int.from_bytes(data[start + 8 : start + 12], "little")
        while int.from_bytes(data[place : place + 2], "little") != 16:
            place += 8 + int.from_bytes(data[place + 2 : place + 4], "little")
            assert place < end
        return place + 8

    def test_without_a_wrong_number_it_is_read(self, path):
        assert opened(path) == "[(2, 3)]\n"

    def test_a_text_that_takes_no_bytes(self, path):
        data = path.read_bytes()
        start = data.index(b"GCOL")
        said = self.changed(path, start + 16, 0, width=24)
        assert "an object of 0 bytes" in said

    def test_a_text_that_is_larger_than_the_rest(self, path):
        start = path.read_bytes().index(b"GCOL")
        said = self.changed(path, start + 16 + 8, (1 << 64) - 16)
        assert "an object of 18446744073709551600 bytes" in said

    def test_free_space_that_follows_itself(self, path):
        data = path.read_bytes()
        for start in (place for place in range(len(data)) if data.startswith(b"HEAP", place)):
            free, begin = (int.from_bytes(data[place : place + 8], "little") for place in (start + 16, start + 24))
            if free != 1:
                break
        said = self.changed(path, begin + free, free)
        assert "which follows itself" in said

    def test_a_block_of_messages_that_is_its_own_next_one(self, path):
        at, data = self.next_block(path), path.read_bytes()
        block, size = (int.from_bytes(data[place : place + 8], "little") for place in (at, at + 8))
        assert size > 24
        (path).write_bytes(
            data[:block]
            + (16).to_bytes(2, "little")
            + (size - 8).to_bytes(2, "little")
            + bytes(4)
            + data[at : at + 16]
            + data[block + 24 :]
        )
        assert f"a block of {size} bytes at byte {block}" in opened(path)

    def test_a_block_of_messages_that_is_too_long(self, path):
        said = self.changed(path, self.next_block(path) + 8, (1 << 64) - 1)
        assert "18446744073709551615 bytes at byte" in said

    def test_a_header_of_the_root_that_is_too_long(self, path):
        data = path.read_bytes()
        root = int.from_bytes(data[64:72], "little")  # of a superblock of version 0
        assert data[root] == 1
        said = self.changed(path, root + 8, (1 << 32) - 1, width=4)
        assert "4294967295 bytes at byte" in said


@pytest.mark.parametrize("version", ["earliest", "v108", "latest"])
def test_headers_of_each_version_are_read(path, version):
    with h5py.File(path, "w", libver=version) as file:
        group = file.create_group("layer", track_order=True)
        group.attrs["weight_names"] = ["a", "b"]
        group["a"] = np.arange(3.0)
        group.create_dataset("b", data=np.arange(8.0), chunks=(8 if version == "latest" else 2,), compression="gzip")
        for place in range(20 if version == "earliest" else 8):
            group["a"].attrs[f"note {place}"] = "text" * place
        file["type"] = np.dtype("f4")
        del file["type"]
    with milepost.load_checkpoint(path) as reader:
        assert {key: reader.get_tensor(key).tolist() for key in reader.keys()} == {  # noqa: SIM118 - no mapping
            "layer/a": [0, 1, 2],
            "layer/b": [*range(8)],
        }


@pytest.mark.parametrize("how", [{"libver": "v108"}, {"libver": "latest"}, {"track_order": True}])
def test_links_in_a_heap_are_refused(path, how):
    """The library ends the process if one of them is damaged."""
    with h5py.File(path, "w", **how) as file:
        for number in range(8):
            file[str(number)] = np.float32(number)
    assert len(milepost.list_variables(path)) == 8
    with h5py.File(path, "a", **how) as file:
        file["a"] = np.float32(8)
    with pytest.raises(UnsupportedError, match="links, in a heap"):
        milepost.list_variables(path)


def test_a_group_of_many_links_in_a_heap_is_refused(path):
    with h5py.File(path, "w") as file:
        group = file.create_group("layers/vars", track_order=True)
        for number in range(9):
            group[str(number)] = np.float32(number)
    with pytest.raises(UnsupportedError, match="links, in a heap"):
        milepost.list_variables(path)


@pytest.mark.parametrize("limit", [None, 8])
def test_other_structures_of_the_newest_format_are_refused(path, limit):
    """The library ends the process if one is damaged."""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("a", data=np.arange(8.0), chunks=(2,), maxshape=(limit,))
    with pytest.raises(UnsupportedError, match="chunks with an index"):
        milepost.list_variables(path)
    with h5py.File(path, "w", libver="v108") as file:
        file["a"] = np.arange(8.0)
        for number in range(9):
            file["a"].attrs[str(number)] = number
    with pytest.raises(UnsupportedError, match="attributes, in a heap"):
        milepost.list_variables(path)


def test_a_chunk_of_no_bytes_is_damage(path):
    """h5py's LZF filter does not end with one."""
    with h5py.File(path, "w") as file:
        chunk = file.create_dataset("a", data=np.arange(30.0), chunks=(30,), compression="lzf").id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    size = data.index(chunk.byte_offset.to_bytes(8, "little")) - 24  # the key before it: size, filters, two offsets
    assert int.from_bytes(data[size : size + 4], "little") == chunk.size
    data[size : size + 4] = bytes(4)
    path.write_bytes(data)
    assert "expected: one byte or more" in opened(path)


def test_names_that_are_no_texts_are_damage(path):
    with h5py.File(path, "w") as file:
        file["a/kernel"] = np.ones(3)
        file.attrs["layer_names"] = ["a"]
        names = np.empty(1, h5py.vlen_dtype(np.int32))
        names[0] = np.arange(2, dtype=np.int32)
        file["a"].attrs["weight_names"] = names
    assert "is not a list of names" in opened(path)
