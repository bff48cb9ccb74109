"""Tables to test with, and ways to make them wrong while all their checksums are right."""

from __future__ import annotations

import struct

from milepost.coding import varint
from milepost.coding.crc32c import crc32c, mask
from milepost.storage import MemoryStorage
from milepost.table import TableReader, TableWriter

# The index of `tf.train.Checkpoint(v=tf.Variable([1., 2.], name="vee"), s=tf.Variable(b"hi")).save(...)`, written by
# TensorFlow 2.21.0.
TENSORFLOW_INDEX = bytes.fromhex(
    "000006 08011a020801"
    "001c0e" + b"_CHECKPOINTABLE_OBJECT_GRAPH".hex() + "08071200201728f60135c72c8db1"
    "001c0b" + b"s/.ATTRIBUTES/VARIABLE_VALUE".hex() + "08071200280735 09eb4d15"
    "01260d" + b"ave_counter/.ATTRIBUTES/VARIABLE_VALUE".hex() + "08091200200f28083501 75de41"
    "001c11" + b"v/.ATTRIBUTES/VARIABLE_VALUE".hex() + "08011204120208022007280835593ce535"
    "0000000001000000 009773c114"
    "0000000001000000 00c0f2a1b0"
    "00010377 00ce01 0000000001000000 0044d37c1b"
    "d301 08 e001 0f" + "00" * 34 + "57fb808b247547db"
)
TENSORFLOW_ENTRIES = [
    (b"", bytes.fromhex("08011a020801")),
    (b"_CHECKPOINTABLE_OBJECT_GRAPH", bytes.fromhex("08071200201728f60135c72c8db1")),
    (b"s/.ATTRIBUTES/VARIABLE_VALUE", bytes.fromhex("0807120028073509eb4d15")),
    (b"save_counter/.ATTRIBUTES/VARIABLE_VALUE", bytes.fromhex("08091200200f2808350175de41")),
    (b"v/.ATTRIBUTES/VARIABLE_VALUE", bytes.fromhex("08011204120208022007280835593ce535")),
]


def pairs_of(rows):
    """The keys and values of `Rows`."""
    return [(key.encode("latin-1"), rows.value(place)) for place, key in enumerate(rows.keys)]


def pairs_in(reader):
    """The keys and values of a table, decoded as its user gets them."""
    return pairs_of(reader.rows())


def write(pairs, **options):
    """The bytes of a table that milepost writes."""
    writer = TableWriter(**options)
    for pair in pairs:
        writer.add([pair])
    return writer.finish()


def open_bytes(data, **options):
    """A reader of a file that holds ``data``."""
    storage = MemoryStorage()
    with storage.create("ckpt-1.index") as file:
        file.write(0, [data])
    return TableReader(storage.open("ckpt-1.index"), **options)


def entry(shared, suffix, value):
    """One entry of a block."""
    return varint.encode(shared) + varint.encode(len(suffix)) + varint.encode(len(value)) + suffix + value


def contents(entries, restarts=(0,), count=None):
    """The contents of a block, whatever its parts say."""
    array = struct.pack(f"<{len(restarts)}I", *restarts)
    return b"".join(entries) + array + struct.pack("<I", len(restarts) if count is None else count)


EMPTY = contents([])


def seal(data, compression=0):
    """A block with its trailer."""
    stored = data + bytes([compression])
    return stored + struct.pack("<I", mask(crc32c(stored)))


def handle(offset, size):
    """A handle as it is stored."""
    return varint.encode(offset) + varint.encode(size)


def table(*blocks, index=None, limits=None, metaindex=EMPTY, footer=None, compress=None, gap=b""):
    """A whole table of given block contents, with right checksums.

    ``index`` replaces the index block's contents, and ``limits`` its keys; ``footer`` the handles in the footer. With
    ``compress``, blocks are compressed. ``gap`` stands between them.
    """
    data = bytearray()

    def store(block):
        block, compression = (compress(block), 1) if compress else (block, 0)
        at = len(data)
        data.extend(seal(block, compression) + gap)
        return handle(at, len(block))

    handles = [store(block) for block in blocks]
    metaindex_handle = store(metaindex)
    if index is None:
        limits = limits or [b"%c\xff" % (n + 97) for n in range(len(blocks))]
        entries = [entry(0, key, value) for key, value in zip(limits, handles, strict=True)]
        offsets = [sum(map(len, entries[:n])) for n in range(len(entries))] or [0]
        index = contents(entries, offsets)
    handles = metaindex_handle + store(index)
    return bytes(data) + (handles if footer is None else footer).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")
