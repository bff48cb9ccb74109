"""Writes the data file of one shard.

::

    data file := {padding tensor}      in the order the tensors were added
    padding   := {00}                  up to the next multiple of the alignment
    tensor    := elements, row-major, in the machine's byte order; or as in `strings` or `variants`

Small tensors are joined in memory. Large tensors are written from their own memory in chunks. Each chunk is written right
after it was hashed, while it is in the cache of the processor. Arrays with another memory layout, or in pieces, are converted
chunk by chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import call
from typing import Final, NamedTuple

import numpy as np

from milepost.bundle.format import strings, variants
from milepost.bundle.format.entry import encode, encode_all
from milepost.bundle.format.slices import KEY_START, parse_slice_key
from milepost.bundle.memory import Array, blocks, bytes_of
from milepost.bundle.parallel import THREADS, for_each
from milepost.bundle.transfer import CHUNK, SEGMENT, WORTH_THREADS
from milepost.coding.crc32c import combine, crc32c, mask, masked_each
from milepost.errors import MilepostError
from milepost.storage import WritableFile
from milepost.tensor import DType, PiecewiseArray
from milepost.tensor.dtype import VARIANT

ALIGNMENT: Final = 64
"""The size of a cache line. Any machine can compute with arrays that are mapped from a file at such positions."""

_SMALL: Final = 64 << 10
"""The most bytes of a tensor that is faster to copy than to write by itself."""
_JOINED: Final = 2 << 20
"""Bytes of small tensors that are written together."""
_TOGETHER: Final = 512
"""Small tensors whose entries are made together. With more of them, their parts take more memory, and hardly less time."""


class Placed(NamedTuple):
    """A tensor or a piece of one, and its key in the index.

    Attributes:
        key: The key in the index.
        array: The elements.
        dtype: Their type.
    """

    key: bytes
    array: Array | PiecewiseArray
    dtype: DType

    @property
    def name(self) -> str:
        """The name of the tensor, for errors."""
        name = parse_slice_key(self.key)[0] if self.key.startswith(KEY_START) else self.key
        return name.decode()


_Run = list[tuple[Placed, bytes, int | None]]
"""Small tensors in the order of the file, with their bytes, and the masked checksum if it is not that of the bytes."""


def write_tensors(
    tensors: Sequence[Placed], shard: int, file: WritableFile, *, alignment: int, written: Callable[[int], None]
) -> dict[bytes, bytes]:
    """Writes a data file.

    Args:
        tensors: The tensors to write, in this order.
        shard: The number of the file, for the entries.
        file: A new file.
        alignment: Tensors begin at multiples of it.
        written: A function that is called with the number of bytes after each write, from several threads.

    Returns:
        The entry of each tensor, by its key in the index.
    """
    layout = _ShardLayout(shard, file, alignment, written)
    large = sum(size for _, array, _ in tensors if (size := array.nbytes) > _SMALL)
    for_each(call, layout.work(tensors), threads=THREADS if large >= WORTH_THREADS else 1)
    return layout.entries()


class _Large:
    """A tensor that is written block by block, with the checksum and size of each block."""

    __slots__ = ("blocks", "offset", "tensor")

    def __init__(self, tensor: Placed, offset: int) -> None:
        self.tensor = tensor
        self.offset = offset
        self.blocks: list[tuple[int, int]] = []


class _ShardLayout:
    def __init__(self, shard: int, file: WritableFile, alignment: int, written: Callable[[int], None]) -> None:
        self._shard = shard
        self._file = file
        self._alignment = alignment
        self._written = written
        self._entries: dict[bytes, bytes] = {}
        self._large: list[_Large] = []
        # small tensors that are not placed yet, and their bytes
        self._run: _Run = []
        self._run_size = 0
        self._end = 0
        # bytes right before the end that are not written yet
        self._unwritten: list[bytes] = []
        self._unwritten_size = 0

    def work(self, tensors: Sequence[Placed]) -> Iterator[Callable[[], None]]:
        """The writes to do, in the order of the file."""
        for tensor in tensors:
            _, array, dtype = tensor
            if dtype.is_bytes:
                pieces, crc = _encoded(tensor)
                size = sum(map(len, pieces))
                if size > _SMALL:
                    yield from self._place_strings(tensor, pieces, size, mask(crc))
                    continue
                self._run.append((tensor, b"".join(pieces), mask(crc)))
            elif array.nbytes > _SMALL:
                yield from self._place_large(tensor)
                continue
            else:
                whole = array if type(array) is np.ndarray else np.asarray(array)
                if whole.dtype is not dtype.numpy:
                    whole = whole.astype(dtype.numpy, copy=False)
                data = whole.tobytes()
                size = len(data)
                self._run.append((tensor, data, None))
            self._run_size += size
            if self._unwritten_size + self._run_size >= _JOINED:
                yield self._flush()
            elif len(self._run) == _TOGETHER:
                self._place_run()
        yield self._flush()

    def entries(self) -> dict[bytes, bytes]:
        """The entries, after all writes."""
        for large in self._large:
            crc = 0
            for block, size in large.blocks:
                crc = combine(crc, block, size)
            key, array, dtype = large.tensor
            self._entries[key] = encode(dtype, array.shape, self._shard, large.offset, array.nbytes, mask(crc))
        return self._entries

    def _place_run(self) -> None:
        """Places small tensors, which takes less time for many together."""
        run, self._run, self._run_size = self._run, [], 0
        if not run:
            return
        data = [data for _, data, _ in run]
        sizes = np.fromiter(map(len, data), np.int64, len(data))
        aligned = -(-sizes // self._alignment) * self._alignment
        self._append(bytes(-self._end % self._alignment))
        starts = self._end + np.cumsum(aligned) - aligned
        crcs = masked_each(b"" if crc is not None else each for _, each, crc in run)
        for index, (_, _, crc) in enumerate(run):
            if crc is not None:
                crcs[index] = crc
        specs = [(dtype, array.shape) for (_, array, dtype), _, _ in run]
        entries = encode_all(specs, self._shard, starts, sizes, crcs)
        self._entries.update(zip([key for (key, _, _), _, _ in run], entries, strict=True))
        aligned[-1] = sizes[-1]
        self._append(b"".join(map(bytes.ljust, data, aligned.tolist(), itertools.repeat(b"\0"))))

    def _place_strings(
        self, tensor: Placed, pieces: Sequence[bytes], size: int, crc: int
    ) -> Iterator[Callable[[], None]]:
        self._place_run()
        self._append(bytes(-self._end % self._alignment))
        self._entries[tensor.key] = encode(tensor.dtype, tensor.array.shape, self._shard, self._end, size, crc)
        for piece in pieces:
            if len(piece) > _SMALL or self._unwritten_size >= _JOINED:
                yield self._flush()
            self._append(piece)

    def _place_large(self, tensor: Placed) -> Iterator[Callable[[], None]]:
        self._place_run()
        self._append(bytes(-self._end % self._alignment))
        yield self._flush()
        large = _Large(tensor, self._end)
        self._large.append(large)
        array = tensor.array
        if isinstance(array, np.ndarray) and array.flags.c_contiguous:
            array = array.reshape(-1)
        for block in blocks(array, SEGMENT):
            large.blocks.append((0, block.nbytes))
            yield partial(self._write_block, large, len(large.blocks) - 1, block, self._end)
            self._end += block.nbytes

    def _append(self, piece: bytes) -> None:
        self._unwritten.append(piece)
        self._unwritten_size += len(piece)
        self._end += len(piece)

    def _flush(self) -> Callable[[], None]:
        self._place_run()
        work = partial(self._write_joined, self._end - self._unwritten_size, self._unwritten)
        self._unwritten = []
        self._unwritten_size = 0
        return work

    def _write_joined(self, offset: int, pieces: list[bytes]) -> None:
        # a single piece is not copied
        if data := b"".join(pieces):
            self._file.write(offset, [data])
            self._written(len(data))

    def _write_block(self, large: _Large, number: int, block: Array | PiecewiseArray, offset: int) -> None:
        dtype = large.tensor.dtype.numpy
        crc = 0
        for part in blocks(block, CHUNK):
            chunk = bytes_of(np.ascontiguousarray(part, dtype))
            crc = crc32c(chunk, crc)
            self._file.write(offset, [chunk])
            offset += len(chunk)
            self._written(len(chunk))
        large.blocks[number] = crc, block.nbytes


def _encoded(tensor: Placed) -> tuple[list[bytes], int]:
    """The bytes of a tensor of strings or variants, to be joined, and their checksum, not masked."""
    try:
        elements = strings.elements_of(np.asarray(tensor.array))
    except MilepostError as error:
        raise error.with_context(key=tensor.name) from None
    return variants.encode(elements) if tensor.dtype is VARIANT else strings.encode(elements)
