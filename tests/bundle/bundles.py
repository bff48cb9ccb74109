"""Bundles for tests: written, taken apart, damaged, put together again."""

from __future__ import annotations

import numpy as np

from milepost.bundle import BundleWriter, data_path, index_path, open_bundle
from milepost.bundle.format.messages import BundleEntry, BundleHeader
from milepost.storage import LocalStorage, MemoryStorage
from milepost.table import TableReader, TableWriter
from milepost.tensor import DType, TensorSlice
from tests.table.tables import pairs_in

BIG_ENDIAN = 1


def put(storage, path, data):
    """A file with this content, also where there was another."""
    storage.remove(path)
    with storage.create(path) as file:
        file.write(0, [data])


def content(storage, path):
    file = storage.open(path)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


def commit(writer, storage, prefix, shards=1):
    """Writes what was added to a writer."""
    for shard in range(shards):
        storage.remove(data_path(prefix, shard, shards))
        with storage.create(data_path(prefix, shard, shards)) as file:
            writer.write_shard(shard, file)
    put(storage, index_path(prefix), writer.index())


def write(storage, prefix, tensors, *, shards=1, **options):
    """A bundle of these tensors, dealt out to the shards; a value may be an array or (shape, {box: array})."""
    writer = BundleWriter(shards=shards, **options)
    for number, (key, value) in enumerate(tensors.items()):
        if isinstance(value, tuple):
            shape, pieces = value
            for turn, (box, array) in enumerate(pieces.items()):
                writer.add_slice(key, shape, TensorSlice.parse(box), array, shard=(number + turn) % shards)
        else:
            writer.add(key, value, shard=number % shards)
    commit(writer, storage, prefix, shards)


def bundle(tensors, **options):
    """A bundle with the prefix ``x`` in memory, open."""
    storage = MemoryStorage()
    write(storage, "x", tensors, **options)
    return open_bundle(storage, "x")


def rows(storage, prefix):
    """The table that an index is."""
    return dict(pairs_in(TableReader(storage.open(index_path(prefix)))))


def put_rows(storage, prefix, rows):
    table = TableWriter()
    table.add(sorted(rows.items()))
    put(storage, index_path(prefix), table.finish())


def edit(storage, prefix, key, change):
    """Lets ``change`` alter an entry, or the header if the key is empty."""
    table = rows(storage, prefix)
    message = (BundleEntry if key else BundleHeader)()
    message.MergeFromString(table[key.encode()])
    change(message)
    table[key.encode()] = message.SerializeToString()
    put_rows(storage, prefix, table)


def example(dtype, shape=(2, 3)):
    """Distinct values of a type, its bytes being those of no other type's values."""
    size = int(np.prod(shape, dtype=int))
    if dtype.is_bytes:
        return np.array([b"\x00" * n + b"element %d" % n for n in range(size)], object).reshape(shape)
    base = dtype.numpy[0] if dtype.numpy.names else dtype.numpy
    numbers = np.arange(size) % 2 if base.itemsize == 1 else np.arange(size) * 3 + 1
    array = numbers.astype(np.float32).astype(base)
    if base.kind == "c":
        array = array - 2j * array
    return array.astype(base).view(dtype.numpy).reshape(shape)


def same(a, b):
    """Whether two arrays have the same type, shape and bytes."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes()


NUMBERS = [dtype for dtype in DType.all() if not dtype.is_bytes]
EVERY_DTYPE = DType.all()

__all__ = [
    "BIG_ENDIAN",
    "EVERY_DTYPE",
    "NUMBERS",
    "LocalStorage",
    "MemoryStorage",
    "bundle",
    "commit",
    "content",
    "edit",
    "example",
    "put",
    "put_rows",
    "rows",
    "same",
    "write",
]
