"""Entries that are decoded together are what they are one by one."""

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointOptions, MaxShardSizePolicy, Variable
from milepost.bundle import open_bundle
from milepost.bundle.format import columns as columns_module
from milepost.bundle.format.columns import decode_all as decode_columns
from milepost.bundle.format.entry import decode, encode
from milepost.coding import varint
from milepost.errors import MilepostError, UnsupportedError
from milepost.storage.default import DEFAULT_STORAGE
from milepost.table import Rows, TableWriter
from milepost.tensor import DType, TensorSlice

FLOAT, STRING = DType.of("float32"), DType.of("string")
USUAL = [
    encode(FLOAT, (2,), offset=7, size=8, crc=5),
    encode(FLOAT, (), shard=3, size=4, crc=0xFFFFFFFF),
    encode(FLOAT, (300, 70_000), shard=99_998, offset=1 << 61, size=84_000_000, crc=1 << 31),
    encode(FLOAT, (0, 5)),
    encode(STRING, (3,), offset=1, size=30, crc=9),
    encode(DType.of("bfloat16"), (1,) * 20, size=2),
    encode(FLOAT, (2,), shard=(1 << 31) - 1, size=8),
    encode(FLOAT, (2,), offset=(1 << 62) - 1, size=8),
]
LEFT_TO_DECODE = [
    b"",
    b"\x08",
    encode(FLOAT, (4,), slices=[TensorSlice(((0, 2),)), TensorSlice(((2, 2),))]),
    encode(FLOAT, (2,), offset=7, size=9),
    encode(STRING, (3,), size=2),
    encode(FLOAT, (2,), size=8, crc=5)[:-1],
    encode(FLOAT, (2,), offset=1 << 20, size=8)[:-3],
    encode(FLOAT, (2,), size=8) + b"\x20\x07",
    encode(FLOAT, (2,), size=8) + b"\x08\x02",
    encode(FLOAT, (1 << 40, 1 << 40)),
    b"\x08\xff\xff\xff\xff\x0f\x12\x00",
    encode(FLOAT, (2,)) + b"\x18" + varint.encode(1 << 31) + b"\x28\x08",
    encode(FLOAT, (2,), offset=1 << 62, size=8),
    encode(STRING, (2,), size=1 << 62),
    encode(FLOAT, (2,)) + b"\x18" + b"\xff" * 9 + b"\x01\x28\x08",
    encode(FLOAT, (2,)) + b"\x20" + b"\xff" * 9 + b"\x01\x28\x08",
]


def decode_all(rows):
    ends = np.cumsum([*map(len, rows)], dtype=np.int64)
    lengths = np.array([*map(len, rows)], np.int64)
    return decode_columns(Rows([""] * len(rows), b"".join(rows), ends - lengths, ends))


def fields(columns, place):
    spec = columns.specs[columns.spec[place]]
    return (
        spec.dtype,
        spec.shape,
        *(int(each[place]) for each in (columns.file, columns.start, columns.size, columns.checksum)),
    )


def test_the_usual_entries_are_decoded_as_one_by_one():
    columns = decode_all(USUAL)
    assert columns.others == []
    assert [fields(columns, place) for place in range(len(USUAL))] == [decode(row)[:6] for row in USUAL]


@pytest.mark.parametrize("row", LEFT_TO_DECODE)
def test_others_are_left_to_decode(row):
    """Also if the bytes after them would complete them."""
    assert decode_all([USUAL[0], row, USUAL[1]]).others == [1]
    assert decode_all([USUAL[0], row]).others == [1]


def test_an_entry_whose_first_byte_alone_differs_is_not_taken_for_the_one_before():
    assert decode_all([USUAL[0], b"\x09" + USUAL[0][1:], USUAL[1]]).others == [1]


def test_no_entries():
    assert decode_all([]).others == []


def test_damaged_entries_are_never_decoded_otherwise():
    random = np.random.default_rng(0)
    rows = []
    for _ in range(4000):
        row = bytearray(USUAL[random.integers(len(USUAL))])
        for _ in range(random.integers(1, 3)):
            row[random.integers(len(row))] = random.integers(256)
        rows.append(bytes(row[: random.integers(1, len(row) + 1)]))
    columns = decode_all(rows)
    others = set(columns.others)
    assert 0 < len(others) < len(rows)
    for place, row in enumerate(rows):
        if place not in others:
            assert fields(columns, place) == decode(row)[:6]
        else:
            try:
                entry = decode(row)
            except MilepostError:
                continue
            # what both could decode is a form that no writer uses
            assert entry.slices or encode(*entry[:6]) != row


def test_an_index_without_any_entry_that_can_be_decoded(tmp_path):
    """There are more keys than are looked up one by one."""
    prefix = str(tmp_path / "ckpt")
    names = [f"k{number:03}" for number in range(100)]
    resource = bytes.fromhex("08 14 12 00")
    writer = TableWriter()
    writer.add([(b"", bytes.fromhex("08 01 1a 02 08 01")), *((name.encode(), resource) for name in names)])
    (tmp_path / "ckpt.index").write_bytes(writer.finish())
    (tmp_path / "ckpt.data-00000-of-00001").write_bytes(b"")
    with open_bundle(DEFAULT_STORAGE, prefix) as reader:
        for name in names:
            with pytest.raises(UnsupportedError, match="a resource"):
                reader.entry(name)


def test_all_specs_are_those_of_one_by_one(tmp_path):
    """Also of tensors in pieces, of strings, and under keys that are not ASCII."""
    values = {f"v{number:03}": np.zeros((number % 5, 2), np.float32) for number in range(200)}
    tree = values | {"größe": np.zeros(3), "text": np.array([b"a", b"b"], object), "pieces": np.zeros((300, 7))}
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(1000))
    variables = {name: Variable(value) for name, value in tree.items()}
    prefix = Checkpoint(**variables).write(tmp_path / "ckpt", options)
    with open_bundle(DEFAULT_STORAGE, prefix) as reader, open_bundle(DEFAULT_STORAGE, prefix) as other:
        assert "größe/.ATTRIBUTES/VARIABLE_VALUE" in reader.keys()  # noqa: SIM118 - a reader is not a mapping
        found = reader.catalogue()
        assert found.keys == other.keys()
        assert found.spec_of_each() == [other.spec(key) for key in found.keys]
        assert reader.entry("pieces/.ATTRIBUTES/VARIABLE_VALUE").slices


def test_heads_of_one_sum_are_told_apart(monkeypatch):
    """The beginnings of entries are found by sums of their bytes, which could be the same by chance."""
    monkeypatch.setattr(columns_module, "_FACTOR", np.uint64(0))
    rows = [encode(FLOAT, (2, 3), size=24), encode(FLOAT, (2,), size=8)] * 3
    long = [encode(FLOAT, (length, 3, 4, 5, 6, 7, 8, 9), size=4 * length * 181440) for length in (1, 2, 3)]
    columns = decode_all([*rows, *long])
    others = set(columns.others)
    assert others
    for place, row in enumerate([*rows, *long]):
        if place not in others:
            assert fields(columns, place) == decode(row)[:6]


def test_heads_of_one_sum_and_one_length_are_told_apart(monkeypatch):
    """The fields after them would fit either."""
    monkeypatch.setattr(columns_module, "_FACTOR", np.uint64(0))
    shapes = [(1, 2, 3, 4, 5), (2, 1, 3, 4, 5), (3, 2, 1, 4, 5)]
    rows = [encode(DType.of(name), shape, size=480) for name in ("float32", "int32") for shape in shapes]
    assert len({len(row) for row in rows}) == 1
    columns = decode_all(rows)
    assert columns.others
    for place in {*range(len(rows))}.difference(columns.others):
        assert fields(columns, place) == decode(rows[place])[:6]


def test_what_is_left_to_decode_is_decoded_when_it_is_asked_for(tmp_path):
    """After all others have been decoded together, which are so many that they are not looked up one by one."""
    values = {f"v{number:03}": np.zeros(2, np.float32) for number in range(200)}
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(1000))
    variables = {name: Variable(value) for name, value in {**values, "z": np.zeros((300, 7))}.items()}
    prefix = Checkpoint(**variables).write(tmp_path / "ckpt", options)
    with open_bundle(DEFAULT_STORAGE, prefix) as reader:
        found = [reader.entry(key) for key in sorted(reader.keys())]
    pieces = [entry for entry in found if entry.slices]
    assert [entry.shape for entry in pieces] == [(300, 7)]
    assert {entry.shape for entry in found if not entry.slices} >= {(2,)}
