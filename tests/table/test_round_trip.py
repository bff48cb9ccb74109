from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import MismatchError
from milepost.table import TableWriter
from tests.table.tables import (
    TENSORFLOW_ENTRIES,
    TENSORFLOW_INDEX,
    contents,
    entry,
    open_bytes,
    pairs_in,
    table,
    write,
)

KEYS = st.lists(st.sampled_from([b"a", b"b", b"layer/", b"\x00", b"\xff", b"\xfe"]), max_size=6).map(b"".join) | (
    st.binary(max_size=300)
)
MODELS = st.dictionaries(KEYS, st.binary(max_size=300), max_size=40)
OPTIONS = st.fixed_dictionaries({"block_size": st.integers(1, 400), "restart_interval": st.integers(1, 20)})


@given(MODELS, OPTIONS, KEYS)
def test_a_table_is_a_sorted_dict(model, options, probe):
    """Over blocks of every size, a table answers as a dict does, and lists its entries in order."""
    pairs = sorted(model.items())
    reader = open_bytes(write(pairs, **options))
    reader.verify()
    assert pairs_in(reader) == pairs
    assert [reader.get(key) for key in model] == list(model.values())
    for key in (probe, *(key + b"\x00" for key in model), *(key[:-1] for key in model)):
        assert reader.get(key) == model.get(key)


@given(MODELS)
def test_rewriting_gives_the_same_bytes(model):
    """The bytes follow from the entries alone."""
    data = write(sorted(model.items()))
    assert write(pairs_in(open_bytes(data))) == data


@pytest.mark.parametrize("same", [255, 256, 257, 1000, 25_000])
@pytest.mark.parametrize("rest", [(b"", b"x"), (b"bias", b"kernel"), (b"a" + bytes(999), b"b" + bytes(999))])
def test_of_a_long_key_only_what_differs_from_the_one_before_is_written(same, rest):
    keys = [(b"next/" * 5000)[:same] + end for end in rest]
    block = contents([entry(0, keys[0], b"1"), entry(same, rest[1], b"2")])
    assert write([(keys[0], b"1"), (keys[1], b"2")]).startswith(block)


def test_the_bytes_of_tensorflow():
    """The index of a small checkpoint of TensorFlow 2.21 is read, and written again to the same bytes."""
    assert len(TENSORFLOW_INDEX) == 292
    reader = open_bytes(TENSORFLOW_INDEX)
    reader.verify()
    assert pairs_in(reader) == TENSORFLOW_ENTRIES
    assert write(TENSORFLOW_ENTRIES) == TENSORFLOW_INDEX


def test_an_empty_table():
    """A table may have no entries; its two blocks and footer remain."""
    data = write([])
    assert len(data) == 2 * 13 + 48
    reader = open_bytes(data)
    reader.verify()
    assert pairs_in(reader) == []
    assert reader.get(b"") is None


@pytest.mark.parametrize(
    ("last", "following", "limit"),
    [
        (b"net/bias", b"net/kernel", b"net/c"),
        (b"abc", b"abd", b"abc"),
        (b"abc", b"abe", b"abd"),
        (b"abc", b"abcd", b"abc"),
        (b"a\xff", b"b", b"a\xff"),
        (b"a\xfe\x01", b"a\xff", b"a\xfe\x01"),
        (b"", b"a", b""),
    ],
)
def test_index_keys_are_as_short_as_tensorflow_makes_them(last, following, limit):
    """The key between two blocks is cut at the first byte that differs, if it can be incremented there."""
    reader = open_bytes(write([(last, b""), (following, b"")], block_size=1))
    assert reader._limits[0] == limit.decode("latin-1")


@pytest.mark.parametrize(
    ("last", "limit"), [(b"abc", b"b"), (b"\xff\xffa", b"\xff\xffb"), (b"\xff\xff", b"\xff\xff"), (b"", b"")]
)
def test_the_last_index_key_is_short_too(last, limit):
    """After the last block nothing follows, so its key is cut at the first byte that can be incremented."""
    assert open_bytes(write([(last, b"")]))._limits == [limit.decode("latin-1")]


@pytest.mark.parametrize("key", [b"a", b"b", b""])
def test_keys_must_ascend(key):
    """The same key twice, or a smaller one, is refused and changes nothing."""
    writer = TableWriter()
    writer.add([(b"b", b"1")])
    with pytest.raises(MismatchError, match="ascend") as caught:
        writer.add([(key, b"2")])
    assert caught.value.key == key
    assert pairs_in(open_bytes(writer.finish())) == [(b"b", b"1")]


@pytest.mark.parametrize("interval", [1, 2, 4, 1000])
def test_blocks_of_other_writers(interval):
    """Any restart interval, gaps between blocks and empty blocks are read."""
    keys = [b"a%03d" % n for n in range(50)]
    entries, restarts = [], []
    for n, key in enumerate(keys):
        if n % interval == 0:
            restarts.append(sum(map(len, entries)))
        entries.append(entry(0 if n % interval == 0 else 2, key[0 if n % interval == 0 else 2 :], b"v"))
    data = table(contents(entries, restarts), contents([]), contents([entry(0, b"c", b"")]), gap=b"gap")
    reader = open_bytes(data)
    reader.verify()
    assert pairs_in(reader) == [*((key, b"v") for key in keys), (b"c", b"")]
    assert [reader.get(key) for key in (*keys, b"b", b"c", b"d")] == [*[b"v"] * 50, None, b"", None]


@given(MODELS.filter(bool))
def test_compressed_blocks(model):
    """Snappy blocks, which TensorFlow reads but never writes, are read."""
    cramjam = pytest.importorskip("cramjam")
    pairs = sorted(model.items())
    entries = [entry(0, key, value) for key, value in pairs]
    offsets = [sum(map(len, entries[:n])) for n in range(len(entries))]
    data = table(
        contents(entries, offsets), limits=[pairs[-1][0]], compress=lambda b: bytes(cramjam.snappy.compress_raw(b))
    )
    reader = open_bytes(data)
    reader.verify()
    assert pairs_in(reader) == pairs
    assert all(reader.get(key) == value for key, value in pairs)


def test_several_threads_share_a_reader(monkeypatch):
    """Lookups from many threads agree, even while blocks leave the cache."""
    monkeypatch.setattr("milepost.table.reader._CACHE_LIMIT", 500)
    pairs = [(b"%05d" % n, b"%d" % n) for n in range(2000)]
    reader = open_bytes(write(pairs, block_size=100))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(reader.get, [key for key, _ in pairs] * 3))
    assert found == [value for _, value in pairs] * 3
    assert reader._cached == sum(reader._handles[block].size for block in reader._blocks) <= 500


def test_opening_reads_only_footer_and_index():
    """Nothing but what is asked for is read, and no block is read twice."""
    reads = []
    reader = open_bytes(write([(b"%05d" % n, b"") for n in range(2000)], block_size=4096))
    read = reader.file.read
    reader.file.read = lambda offset, length: reads.append(offset) or read(offset, length)
    assert reader.get(b"01000") == b""
    assert reader.get(b"01001") == b""
    assert len(reads) == 1
    assert len(pairs_in(reader)) == 2000
    assert len(reads) == len(set(reads)) == len(reader._handles)
