"""Reads runs of bytes and computes their checksums in one pass.

Bytes are hashed in chunks, right after they were read, while they are in the cache of the processor. Long runs are divided
into segments for several threads, and the checksums of the segments are combined.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from milepost.bundle.counting import Count, counter
from milepost.bundle.memory import Bytes
from milepost.bundle.parallel import THREADS, for_each
from milepost.coding.crc32c import combine, crc32c
from milepost.errors import MilepostError
from milepost.storage import ReadableFile

CHUNK: Final = 1 << 20
"""Bytes to read or write at once. They fit into the cache of any processor, and Python's overhead is small for them."""
SEGMENT: Final = 16 << 20
"""Bytes that one thread works on before it takes the next piece of work."""
WORTH_THREADS: Final = 8 << 20
"""Bytes below which starting threads takes longer than it saves."""


@dataclass(slots=True)
class Span:
    """A run of bytes in a file that belong to one tensor.

    Attributes:
        key: The tensor, for errors.
        file: The file.
        offset: The first byte.
        size: The number of bytes.
        target: The memory to read into; None to compute only the checksum.
        crc: Their checksum, not masked, after they were read.
    """

    key: str
    file: ReadableFile
    offset: int
    size: int
    target: Bytes | None = None
    crc: int = field(default=0, init=False)


def read_spans(spans: Sequence[Span], *, checksum: bool = True) -> None:
    """Reads spans, on several threads if there is much to read.

    Args:
        spans: The spans to read.
        checksum: Whether to compute checksums as well.

    Raises:
        MilepostError: A file cannot be read; the error names the tensor.
    """
    segments = [part for span in spans for part in _segments(span)]
    buffers = threading.local()
    count = counter()

    def read(segment: Span) -> None:
        target = segment.target
        if target is None:
            if not hasattr(buffers, "own"):
                buffers.own = np.empty(CHUNK, np.uint8)
            target = buffers.own
        try:
            segment.crc = _read(segment, target, checksum, count)
        except MilepostError as error:
            raise error.with_context(key=segment.key) from None

    threads = THREADS if len(segments) > 1 and sum(span.size for span in spans) >= WORTH_THREADS else 1
    for_each(read, segments, threads=threads)
    if checksum:
        position = 0
        for span in spans:
            span.crc = segments[position].crc
            for start in range(SEGMENT, span.size, SEGMENT):
                position += 1
                span.crc = combine(span.crc, segments[position].crc, min(SEGMENT, span.size - start))
            position += 1


def read_chunks(file: ReadableFile, offset: int, size: int) -> Iterator[Bytes]:
    """Reads a run of bytes through one buffer. Each chunk is valid until the next one is read."""
    buffer = np.empty(min(CHUNK, size), np.uint8)
    count = counter()
    for start in range(0, size, CHUNK):
        chunk = buffer[: min(CHUNK, size - start)]
        file.read_into(offset + start, chunk)
        if count is not None:
            count(len(chunk))
        yield chunk


def _segments(span: Span) -> Iterator[Span]:
    if span.size <= SEGMENT:
        yield span
        return
    for start in range(0, span.size, SEGMENT):
        size = min(SEGMENT, span.size - start)
        target = None if span.target is None else span.target[start : start + size]
        yield Span(span.key, span.file, span.offset + start, size, target)


def _read(span: Span, target: Bytes, checksum: bool, count: Count | None) -> int:
    crc = 0
    for start in range(0, span.size, CHUNK):
        size = min(CHUNK, span.size - start)
        chunk = target[:size] if span.target is None else target[start : start + size]
        span.file.read_into(span.offset + start, chunk)
        if checksum:
            crc = crc32c(chunk, crc)
        if count is not None:
            count(size)
    return crc
