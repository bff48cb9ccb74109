"""CRC-32C (Castagnoli), as TensorFlow and LevelDB store it.

Reflected polynomial 0x82F63B78, initial value and final complement 0xFFFFFFFF: RFC 3720, appendix B.4. Files hold
*masked* checksums, rotated and offset, because the checksum of bytes that contain their own checksum is always the
same; source: LevelDB ``util/crc32c.h``.

Three packages can compute it, at about 17 GB/s each. The first one that is installed is used for large buffers:

1. ``awscrt`` (``pip install milepost[fast]``) accepts any buffer, and other threads run meanwhile.
2. ``crc32c`` does the same. Its licence is the LGPL, so milepost does not depend on it.
3. ``google-crc32c``, on which milepost depends, is small and runs everywhere, but stops all other threads.

The third one is used for small buffers, and for bytes up to some megabytes. The first takes some 70 ms to import, so a program that
saves only small arrays never imports it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import numpy as np

Buffer = bytes | bytearray | memoryview | np.ndarray[Any, Any]
Checksums = np.ndarray[Any, np.dtype[np.int64]]
_Checksums = TypeVar("_Checksums", int, Checksums)

_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8
_CHUNK: Final = 8 << 20
"""Bytes to hash at once if other threads stop meanwhile. They take about half a millisecond."""
_SMALL: Final = 64 << 10
"""Bytes of a small buffer. They take about four microseconds, in which other threads may stop."""
_TINY: Final = 1 << 10
"""Bytes up to which a copy is faster than an array that wraps the memory."""


def _awscrt() -> Callable[[Buffer, int], int]:
    return importlib.import_module("awscrt.checksums").crc32c  # type: ignore[no-any-return]


def _icrar() -> Callable[[Buffer, int], int]:
    return importlib.import_module("crc32c").crc32c  # type: ignore[no-any-return]


def _google() -> Callable[[Buffer, int], int]:
    extend: Callable[[int, Buffer], int] = importlib.import_module("google_crc32c").extend

    def crc32c(data: Buffer, value: int) -> int:
        if isinstance(data, bytes) and len(data) <= _CHUNK:
            return extend(value, data)
        array = data if isinstance(data, np.ndarray) else _without_view(data)
        if isinstance(array, bytes):
            return extend(value, array)
        if array.nbytes <= _CHUNK:
            return extend(value, array)
        if not array.flags.c_contiguous:
            raise ValueError("ndarray is not C-contiguous")
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, len(flat), _CHUNK):
            value = extend(value, flat[start : start + _CHUNK])
        return value

    return crc32c


PROVIDERS: Final = {"awscrt": _awscrt, "crc32c": _icrar, "google-crc32c": _google}
"""The functions that load a package, by its name. An `ImportError` means that the package is absent or cannot run here."""


@cache
def provider() -> tuple[str, Callable[[Buffer, int], int]]:
    """The package for large buffers, by its name, and its function.

    Raises:
        ImportError: There is none.
    """
    for name, load in PROVIDERS.items():
        try:
            return name, load()
        except (ImportError, AttributeError):
            continue
    raise ImportError("no installed package computes CRC-32C; run: pip install google-crc32c")


def _for_small() -> Callable[[int, Buffer], int]:
    """The function for small bytes and arrays. google-crc32c runs without its compiled part too, and is then too slow."""
    try:
        google = importlib.import_module("google_crc32c")
        if google.implementation == "c":
            return google.extend  # type: ignore[no-any-return]
    except ImportError:
        pass
    _, extend = provider()
    return lambda value, data: extend(data, value)


_extend: Final = _for_small()


def crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum of ``data``, or of earlier data followed by ``data``.

    Args:
        data: Contiguous bytes, hashed in place.
        value: The checksum of the earlier data.

    Example:
        >>> hex(crc32c(b"6789", crc32c(b"12345")))
        '0xe3069283'
    """
    # bytes, or a view of some, are blocks of an index and object graphs, which one thread hashes
    if isinstance(data, bytes):
        if len(data) <= _CHUNK:
            return _extend(value, data)
    elif isinstance(data, np.ndarray):
        if data.nbytes <= _SMALL:
            return _extend(value, data)
    else:
        view = memoryview(data)
        if view.nbytes <= (_CHUNK if isinstance(view.obj, bytes) else _SMALL):
            return _extend(value, _without_view(view))
    return provider()[1](data, value)


def _without_view(data: Buffer) -> bytes | np.ndarray[Any, Any]:
    """The same bytes as google-crc32c takes them, which takes bytes and arrays only."""
    view = memoryview(data)
    return bytes(view) if view.nbytes <= _TINY and view.c_contiguous else np.frombuffer(data, np.uint8)


def masked_each(parts: Iterable[Buffer]) -> Checksums:
    """The checksum of each of many pieces of data, in the form in which files hold it. Short bytes take the least time.

    Example:
        >>> masked_each([b"one", b"two"]).tolist() == [mask(crc32c(b"one")), mask(crc32c(b"two"))]
        True
    """
    extend = _extend
    crcs = [extend(0, part) if isinstance(part, bytes) and len(part) <= _SMALL else crc32c(part) for part in parts]
    return mask(np.array(crcs, np.int64))


def mask(crc: _Checksums) -> _Checksums:
    """The form in which files hold a checksum, or each of an array of checksums."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def unmask(masked: int) -> int:
    """The inverse of `mask`."""
    rotated = (masked - _MASK_DELTA) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def combine(crc_a: int, crc_b: int, length_b: int) -> int:
    """The checksum of two pieces of data joined, from their checksums.

    Args:
        crc_a: The checksum of the first piece.
        crc_b: The checksum of the second piece.
        length_b: Bytes in the second piece.

    Example:
        >>> combine(crc32c(b"1234567"), crc32c(b"89"), 2) == crc32c(b"123456789")
        True
    """
    return _multiply(_shift(length_b), crc_a) ^ crc_b


# Checksums are polynomials over GF(2) modulo the CRC's, lowest power in the highest bit. Appending n zero bytes to the
# data multiplies its checksum by x**(8 * n); the initial and final complements cancel out between the pieces.


def _multiply(a: int, b: int) -> int:
    product = 0
    while a:
        if a & 0x80000000:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@lru_cache(maxsize=1024)
def _shift(length: int) -> int:
    product = 0x80000000  # 1
    for exponent in range(length.bit_length()):
        if length >> exponent & 1:
            product = _multiply(product, _power(exponent))
    return product


@cache
def _power(exponent: int) -> int:
    """The shift by ``2**exponent`` bytes."""
    if exponent == 0:
        return 0x00800000  # x**8
    half = _power(exponent - 1)
    return _multiply(half, half)
