"""What is decoded of one block, and of all."""

import pytest

from milepost.errors import CorruptCheckpointError
from milepost.table.rows import Rows, check_restarts, decode
from tests.table.tables import contents, entry, open_bytes, pairs_in, pairs_of, table, write

LONG = [(b"a" * 300 + b"%d" % number, b"v" * 200) for number in range(3, 7)]


@pytest.mark.parametrize("interval", [1, 3, 16, 1000])
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
    reader = open_bytes(write(pairs, block_size=500, restart_interval=interval))
    assert pairs_in(reader) == pairs
    assert reader.first() == pairs[0]
    assert [reader.get(key) for key, _ in pairs] == [value for _, value in pairs]
    assert pairs_in(reader) == pairs
    reader.verify()


def test_the_first_entry_of_a_block_whose_others_are_damaged():
    block = contents([entry(0, b"a", b"1"), entry(0, b"a", b"2")])
    assert pairs_of(decode(block, first=True)) == [(b"a", b"1")]
    with pytest.raises(CorruptCheckpointError, match="out of order"):
        decode(block)


@pytest.mark.parametrize("restarts", [(0, 0), (0, 4, 4), (0, 5)])
def test_restarts_that_are_not_those_of_the_entries(restarts):
    rows = decode(contents([entry(0, b"a", b""), entry(0, b"b", b"")], restarts))
    assert pairs_of(rows) == [(b"a", b""), (b"b", b"")]
    with pytest.raises(CorruptCheckpointError, match="restarts are wrong"):
        check_restarts(rows)


def test_keys_that_would_fill_the_memory():
    block = contents([entry(0, b"a" * 9000, b""), *(entry(9000, b"%05d" % n, b"") for n in range(120))])
    with pytest.raises(CorruptCheckpointError, match="does not fit"):
        decode(block)


def test_a_key_outside_of_the_limits_of_its_block():
    block = contents([entry(0, b"b", b"")])
    for data in (table(block, limits=[b"a"]), table(contents([entry(0, b"a", b"")]), block, limits=[b"b", b"c"])):
        with pytest.raises(CorruptCheckpointError, match="disagrees"):
            open_bytes(data).rows()


def test_no_rows():
    assert pairs_of(Rows.joined([])) == pairs_in(open_bytes(write([]))) == []
