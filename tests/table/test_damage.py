import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.coding import varint
from milepost.errors import CorruptCheckpointError
from tests.counting import lines_run, most_bytes
from tests.table.tables import (
    EMPTY,
    TENSORFLOW_ENTRIES,
    TENSORFLOW_INDEX,
    contents,
    entry,
    handle,
    open_bytes,
    pairs_in,
    seal,
    table,
    write,
)

MAGIC = TENSORFLOW_INDEX[-8:]


def read_all(data, **options):
    """All that a user can get out of a table."""
    reader = open_bytes(data, **options)
    pairs = pairs_in(reader)
    reader.verify()
    for key, value in pairs:
        assert reader.get(key) == value
    return pairs


def one(*entries, restarts=(0,), count=None, **options):
    """A table of one block with these entries."""
    return table(contents(entries, restarts, count), **options)


DAMAGE = {
    "empty file": (b"", "too short"),
    "half a footer": (TENSORFLOW_INDEX[-47:], "too short"),
    "another format": (b"\x89HDF\r\n\x1a\n" + bytes(100), "not a checkpoint index"),
    "magic": (TENSORFLOW_INDEX[:-8] + MAGIC[::-1], "not a checkpoint index"),
    "footer without handles": (b"\xff" * 40 + MAGIC, "no number at byte 0.*footer at offset 0"),
    "index outside the file": (table(footer=handle(0, 8) + handle(30, 8)), "outside its file.*index block"),
    "index of 2**63 bytes": (table(footer=handle(0, 8) + handle(0, 2**63)), "outside its file"),
    "index at 2**64 - 1": (table(footer=handle(0, 8) + handle(2**64 - 1, 8)), "outside its file"),
    "index inside the footer": (table(footer=handle(0, 8) + handle(22, 8)), "outside its file"),
    "index handle cut off": (table(index=contents([entry(0, b"a", b"\x00")])), "no number"),
    "metaindex": (table(footer=handle(1, 8) + handle(13, 8)), "checksum.*metaindex block at offset 1"),
    "metaindex contents": (table(metaindex=contents([], ())), "restart array.*metaindex block at offset 0"),
    "data outside the file": (table(index=contents([entry(0, b"a", handle(999, 1))])), "outside its file.*offset 999"),
    "checksum": (table(EMPTY)[1:].join([b"\1", b""]), "checksum is wrong.*data block at offset 0"),
    "unknown compression": (seal(EMPTY, 4) + table(EMPTY)[13:], "unknown compression"),
    "broken compression": (seal(b"\x09\x1cabcdef", 1) + table(EMPTY)[13:], "ends inside a literal"),
    "compression claims too much": (table(EMPTY, compress=lambda _: b"\xff\xff\xff\xff\x07"), "too much.*index block"),
    "no contents": (table(b""), "restart array"),
    "short restart array": (table(b"\0\0\0"), "restart array"),
    "no restarts": (one(entry(0, b"a", b""), restarts=()), "restart array"),
    "too many restarts": (one(entry(0, b"a", b""), count=2**32 - 1), "restart array"),
    "entry cut off": (one(entry(0, b"a", b"value")[:-1]), "does not fit"),
    "entry header cut off": (one(b"\0\1"), "no number|does not fit"),
    "huge key": (one(b"\0" + varint.encode(2**63) + b"\0"), "does not fit"),
    "huge value": (one(b"\0\1" + varint.encode(2**64 - 1) + b"a"), "does not fit"),
    "overlong length": (one(b"\xff" * 12), "no number"),
    "shares more than there is": (one(entry(0, b"a", b""), entry(2, b"b", b"")), "does not fit"),
    "first shares": (one(entry(1, b"a", b"")), "does not fit"),
    "same key twice": (one(entry(0, b"a", b""), entry(1, b"", b"")), "out of order"),
    "empty key twice": (one(entry(0, b"", b""), entry(0, b"", b"")), "out of order"),
    "descending keys": (one(entry(0, b"ab", b""), entry(1, b"a", b"")), "out of order"),
    "key after its block": (table(contents([entry(0, b"b", b"")]), limits=[b"a"]), "disagrees"),
    "key before its block": (
        table(contents([entry(0, b"a", b"")]), contents([entry(0, b"a", b"")]), limits=[b"b", b"c"]),
        "disagrees.*offset 17",
    ),
    "descending index": (table(EMPTY, EMPTY, limits=[b"b", b"a"]), "out of order.*index block"),
    "overlapping blocks": (
        table(EMPTY, index=contents([entry(0, b"a", handle(0, 8)), entry(0, b"b", handle(0, 8))])),
        "overlap",
    ),
    "restart outside": (one(entry(0, b"a", b""), restarts=(0, 999)), "restart lies outside"),
    "restart in an empty block": (one(restarts=(7,)), "restart lies outside"),
    "restart inside an entry": (
        one(entry(0, b"a", b""), entry(0, b"aa", b"\0\1\0z"), restarts=(0, 9)),
        "restarts are wrong",
    ),
    "restart at a shared key": (
        one(entry(0, b"a", b""), entry(1, b"b", b""), restarts=(0, 4)),
        "does not point at a whole key",
    ),
    "descending restarts": (one(entry(0, b"a", b""), entry(0, b"aa", b""), restarts=(4, 0)), "restarts are wrong"),
}


@pytest.mark.parametrize(("data", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_each_kind_of_damage(data, message):
    """Each way of being wrong is found, and the error says where."""
    with pytest.raises(CorruptCheckpointError) as caught:
        read_all(data)
    assert caught.value.file == "ckpt-1.index"
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)


def test_the_error_of_a_wrong_checksum_says_everything():
    """File, block, offset, expected and found value are in the message."""
    damaged = bytearray(TENSORFLOW_INDEX)
    damaged[100] ^= 1
    with pytest.raises(CorruptCheckpointError) as caught:
        pairs_in(open_bytes(bytes(damaged)))
    message = str(caught.value)
    assert "data block at offset 0" in message
    assert "file: ckpt-1.index" in message
    assert "expected: 0x14c17397" in message
    assert "found: 0x" in message


def test_every_flipped_byte_of_a_real_index():
    """Every single damaged byte is detected, or lies in the unused part of the footer and changes nothing."""
    harmless = set()
    for place in range(len(TENSORFLOW_INDEX)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(TENSORFLOW_INDEX)
            damaged[place] ^= flip
            try:
                assert read_all(bytes(damaged)) == TENSORFLOW_ENTRIES
            except CorruptCheckpointError:
                continue
            harmless.add((place, flip))
    footer = len(TENSORFLOW_INDEX) - 48
    padding = {(place, flip) for place in range(footer + 6, footer + 40) for flip in (0x01, 0x80, 0xFF)}
    # With its high bit set, the last byte of the last handle goes on into the padding, which adds nothing.
    assert harmless == padding | {(footer + 5, 0x80)}


def test_truncation_at_every_length():
    """No beginning of an index is taken for an index."""
    for length in range(len(TENSORFLOW_INDEX)):
        with pytest.raises(CorruptCheckpointError):
            open_bytes(TENSORFLOW_INDEX[:length])


@given(st.data())
def test_random_damage_to_a_table_of_many_blocks(data):
    """Bytes overwritten, cut out or doubled never give wrong entries, nor any error but ours."""
    pairs = [(b"layer/%02d/kernel" % n, b"value %d" % n) for n in range(30)]
    whole = write(pairs, block_size=80, restart_interval=3)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, min(len(whole), start + 20)))
    damaged = whole[:start] + data.draw(st.binary(max_size=20) | st.just(whole[start:stop] * 2)) + whole[stop:]
    try:
        assert read_all(damaged) == pairs
    except CorruptCheckpointError:
        pass


@given(st.binary(max_size=60), st.binary(max_size=60), st.booleans())
def test_hostile_blocks_with_right_checksums(block, index, compressed):
    """Whatever checksummed blocks hold, the answer is entries or our error."""
    for data in (table(block, compress=(lambda b: b) if compressed else None), table(block, index=index)):
        try:
            pairs = read_all(data)
        except CorruptCheckpointError:
            continue
        assert pairs == sorted(pairs)


def literal(data):
    """Data as Snappy's simplest stream."""
    return varint.encode(len(data)) + bytes([len(data) - 1 << 2]) + data


HOSTILE_ENTRIES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 1, 2, 200]), st.binary(max_size=4)), max_size=8
).map(lambda entries: b"".join(bytes((a, b)) + varint.encode(c) + rest for a, b, c, rest in entries))


@given(HOSTILE_ENTRIES, st.lists(st.integers(0, 40), max_size=4), st.binary(max_size=3))
def test_hostile_entries_with_right_checksums(entries, restarts, start):
    """Entries and restarts made up at random give entries or our error, for every way of reading."""
    reader = open_bytes(table(contents([entries], restarts), limits=[b"\xff" * 9]))
    for read in (reader.verify, reader.rows, lambda: reader.get(start)):
        try:
            read()
        except CorruptCheckpointError:
            continue


def limited(data, megabytes, lines, **options):
    """Reads everything, which must fail within bounds of memory and of lines that are run."""
    said = set()

    def read():
        with pytest.raises(CorruptCheckpointError) as caught:
            read_all(data, **options)
        said.add(str(caught.value))

    assert most_bytes(read) < megabytes << 20
    assert lines_run(read) < lines
    return said.pop()


def test_keys_that_grow_out_of_nothing():
    """A megabyte cannot spell out gigabytes of keys by repeating a long beginning."""
    long = 500_000
    entries = [entry(0, b"a" * long, b"")]
    entries += [varint.encode(long) + b"\2\0" + n.to_bytes(2, "big") for n in range(60_000)]
    assert "does not fit" in limited(one(*entries, limits=[b"b"]), 200, 20_000)


def test_entries_without_number():
    """A block cannot have as many entries as take a hundred times its size in memory."""
    entries = [b"\0\3\0" + n.to_bytes(3, "big") for n in range(300_000)]
    assert "too many entries" in limited(one(*entries, limits=[b"\xff"]), 100, 20 * len(entries))


def test_keys_that_fill_the_memory():
    """A large block cannot spell out gigabytes of keys, though each repeats little of the one before."""
    entries = [entry(0, b"a" * 600, b"")]
    entries += [varint.encode(600) + b"\x21\0" + n.to_bytes(33, "big") for n in range(200_000)]
    assert "does not fit" in limited(one(*entries, limits=[b"b"]), 250, 50 * len(entries))


def test_a_compressed_block_cannot_claim_more_than_the_limit():
    """A small file cannot ask for a block of gigabytes."""
    bomb = varint.encode(1 + 64 * 1_000_000) + b"\x00a" + b"\xfe\x01\x00" * 1_000_000
    data = table(b"bomb", compress=lambda block: bomb if block == b"bomb" else literal(block))
    assert "too much" in limited(data, 10, 5_000, block_limit=1 << 22)


def test_a_block_larger_than_the_limit_is_not_read():
    """Sparse files are cheap to make, and must be cheap to refuse."""
    pairs = [(b"a", bytes(100_000))]
    assert read_all(write(pairs), block_limit=200_000) == pairs
    assert "too large" in limited(write(pairs), 1, 5_000, block_limit=50_000)
