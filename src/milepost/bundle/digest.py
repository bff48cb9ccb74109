"""Digests of values, which do not depend on how a value is stored, and which several processes can compute together.

::

    digest of a value   := SHA-256 of header and the SHA-256 of each chunk, in 64 hexadecimal digits
    header              := element type " " shape "\\n"             such as ``float32 3,4``; UTF-8
    chunk               := the next 65536 bytes of data, or what is left
    data                := the elements, row-major, in little-endian byte order
                         | for strings: {length of the next string, 8 bytes, little-endian, and the string}
    digest of values    := "sha256-v1:" and the SHA-256 of {name " " digest of the value "\\n"}, sorted by the bytes of the names

A value of no bytes has no chunk. The same values have the same digest in every order, division into files and pieces, format and alignment.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from milepost.bundle.format.strings import elements_of
from milepost.bundle.memory import Array, blocks, bytes_of, swap_bytes
from milepost.errors import importing
from milepost.tensor import DType, PiecewiseArray
from milepost.tensor.spec import format_shape

CHUNK: Final = 1 << 16
"""The bytes of a chunk."""
SIZE: Final = 32
"""The bytes of a digest of SHA-256."""
_BLOCK: Final = 8 << 20
_VERSION: Final = "sha256-v1:"


def _sha256(data: Any) -> bytes:
    with importing():
        hashlib = importlib.import_module("hashlib")  # it loads OpenSSL, which takes about 5 ms
    digest: bytes = hashlib.sha256(data).digest()
    return digest


def data_of(array: Array | PiecewiseArray, dtype: DType, most: int = _BLOCK) -> Iterator[Any]:
    """The data of a value, or of a part of one that follows itself in memory, in parts.

    Args:
        array: The elements.
        dtype: Their type.
        most: The most bytes of a part, unless the elements are strings.
    """
    if dtype.is_bytes:
        for element in elements_of(np.asarray(array)):
            yield len(element).to_bytes(8, "little") + element
        return
    if isinstance(array, np.ndarray) and array.flags.c_contiguous:
        array = array.reshape(-1)
    for block in blocks(array, most):
        elements = np.ascontiguousarray(block, dtype.numpy)
        if sys.byteorder == "big":
            elements = elements.copy()
            swap_bytes(bytes_of(elements), dtype)
        yield memoryview(bytes_of(elements))


def digests_of_chunks(parts: Iterable[Any]) -> bytes:
    """The SHA-256 of each chunk, one after the other.

    Args:
        parts: The data, in any number of parts. Only their concatenation matters.
    """
    digests, left = bytearray(), b""
    for part in parts:
        view = memoryview(part)
        start = 0
        if left:
            start = min(CHUNK - len(left), len(view))
            left += bytes(view[:start])
            if len(left) < CHUNK:
                continue
            digests += _sha256(left)
        end = start + (len(view) - start) // CHUNK * CHUNK
        for position in range(start, end, CHUNK):
            digests += _sha256(view[position : position + CHUNK])
        left = bytes(view[end:])
    return bytes(digests + _sha256(left) if left else digests)


def digest_of_value(dtype: DType, shape: Iterable[int], chunks: bytes) -> str:
    """The digest of a value.

    Args:
        dtype: Its element type.
        shape: Its shape.
        chunks: The digests of its chunks, as `digests_of_chunks` returns them.

    Example:
        >>> array = np.arange(3, dtype=np.float32)
        >>> digest_of_value(DType.of(array), array.shape, digests_of_chunks([array.tobytes()]))[:16]
        '8e092740c4c2723f'
    """
    header = f"{dtype} {format_shape(tuple(shape))}\n"
    return _sha256(header.encode() + chunks).hex()


def digest_of(array: Array | PiecewiseArray, dtype: DType) -> str:
    """The digest of a value that this process holds."""
    return digest_of_value(dtype, array.shape, digests_of_chunks(data_of(array, dtype)))


def digest_of_values(digests: Iterable[tuple[str, str]]) -> str:
    """The digest of values, each of which is given by its name and its digest.

    Example:
        >>> digest_of_values([("b", "22"), ("a", "11")]) == digest_of_values([("a", "11"), ("b", "22")])
        True
    """
    lines = sorted(f"{name} {digest}\n".encode(errors="surrogatepass") for name, digest in digests)
    return _VERSION + _sha256(b"".join(lines)).hex()
