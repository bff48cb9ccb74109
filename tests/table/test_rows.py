"""Entries that are decoded together are those that are decoded one by one."""

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import CorruptCheckpointError
from milepost.table import rows as rows_module
from milepost.table.block import MOST_ENTRIES, entries
from milepost.table.rows import Rows, decode_blocks
from tests.table.tables import (
    TENSORFLOW_INDEX,
    contents,
    entry,
    open_bytes,
    pairs_in,
    pairs_of,
    pairs_one_by_one,
    table,
    write,
)


@pytest.fixture(autouse=True, scope="module")
def small_blocks_too():
    """Has blocks with few restarts decoded together, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_LEAST", 1)
        yield


def together(*blocks):
    """The entries of blocks that are decoded together; None if they are left to the other way."""
    found = decode_blocks(blocks)
    return None if found is None else (pairs_of(found[0]), found[1])


LONG = [(b"a" * 300 + b"%d" % number, b"v" * 200) for number in range(3, 7)]


@pytest.mark.parametrize("interval", [1, 3, 16])
@pytest.mark.parametrize(
    "pairs",
    [
        [(b"net/%03d/kernel" % number, b"value %d" % number) for number in range(100)],
        [(b"", b"header"), (b"\0piece", b""), (b"\xff\x80", b"\xff"), ("\xff\u20ac".encode() * 3, b"\0")],
        LONG,
        [(b"k", b"v" * 70_000)],
    ],
)
def test_what_a_writer_writes(pairs, interval):
    pairs = sorted(pairs)
    data = write(pairs, block_size=500, restart_interval=interval)
    reader = open_bytes(data)
    assert pairs_in(reader) == pairs
    blocks = [reader._contents(block) for block in range(len(reader._handles))]
    found = together(*blocks)
    assert found is not None
    assert found[0] == pairs
    assert found[1] == [len(entries(block)) for block in blocks]


@pytest.mark.parametrize("interval", [1, 100])
def test_entries_beyond_the_limit_take_no_memory(interval):
    """Snappy can make a block of them from a file of a twentieth of its size."""
    count = MOST_ENTRIES * 2
    restarts = range(0, 3 * count, 3 * interval)
    block = bytes(3 * count) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    tracemalloc.start()
    try:
        assert decode_blocks([block]) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(block)


def test_what_tensorflow_writes():
    reader = open_bytes(TENSORFLOW_INDEX)
    assert together(reader._contents(0)) == (pairs_one_by_one(reader), [5])


@pytest.mark.parametrize(
    "block",
    [
        contents([entry(0, b"a", b""), entry(1, b"b", b"")], [0, 4]),  # a key at a restart shares bytes
        contents([entry(0, b"a", b""), entry(0, b"b", b"")], [4]),
        contents([entry(0, b"a", b""), entry(0, b"b", b"")], [0, 4, 4]),
        contents([entry(0, b"a", b""), entry(0, b"b", b"")], [0, 5]),
        contents([entry(0, b"b", b""), entry(0, b"a", b"")], [0, 4]),
        contents([entry(0, b"a", b""), entry(0, b"a", b"")], [0, 4]),
        contents([entry(0, b"a", b""), entry(2, b"b", b"")]),
        contents([entry(0, b"a", b"value")[:-1]]),
        contents([entry(0, b"a", b"")], []),
        b"",
    ],
)
def test_other_blocks_are_left_to_the_other_way(block):
    assert together(block) is None
    assert together(contents([entry(0, b"A", b"")]), block) is None


def test_keys_that_would_fill_the_memory():
    block = contents([entry(0, b"a" * 9000, b""), *(entry(9000, b"%05d" % n, b"") for n in range(120))])
    assert together(block) is None
    with pytest.raises(CorruptCheckpointError, match="does not fit"):
        entries(block)


HOSTILE = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, 2, 130]), st.binary(max_size=4)), max_size=8
).map(lambda parts: [bytes(part[:3]) + part[3] for part in parts])


@given(HOSTILE, st.lists(st.integers(0, 40), max_size=4))
def test_hostile_blocks(parts, restarts):
    block = contents(parts, restarts)
    found = together(block)
    if found is not None:
        assert found == (entries(block), [len(entries(block))])


@given(st.integers(0, 10**9), st.integers(1, 5))
def test_damaged_blocks(seed, changes):
    """Whatever is changed, the entries are those of the other way, or none."""
    random = np.random.default_rng(seed)
    pairs = [(b"layer/%02d/kernel" % number, b"value %d" % number) for number in range(30)]
    reader = open_bytes(write(pairs, restart_interval=4))
    block = bytearray(reader._contents(0))
    for _ in range(changes):
        block[random.integers(len(block))] = random.integers(256)
    found = together(bytes(block))
    if found is not None:
        assert found[0] == entries(bytes(block))


def test_a_key_outside_of_the_limits_of_its_block():
    block = contents([entry(0, b"b", b"")])
    for data in (table(block, limits=[b"a"]), table(contents([entry(0, b"a", b"")]), block, limits=[b"b", b"c"])):
        with pytest.raises(CorruptCheckpointError, match="disagrees"):
            open_bytes(data).rows()


def test_no_rows():
    assert pairs_of(Rows.of([])) == pairs_in(open_bytes(write([]))) == []
