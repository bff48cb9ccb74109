"""Writes an array as a ``.npy`` file, piece by piece.

Source: NumPy 2.4, ``numpy/lib/format.py``; the header is NumPy's own.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import IO, Final

import numpy as np

from milepost.bundle.memory import Array, bytes_of
from milepost.errors import UnsupportedError
from milepost.tensor import DType

_NUMBERS: Final = "biufc"
"""The kinds of NumPy's own numbers."""
_DATES: Final = "mM"


def has_type(dtype: DType) -> bool:
    """Whether ``.npy`` has an element type.

    Example:
        >>> has_type(DType.of("float32")), has_type(DType.of("bfloat16"))
        (True, False)
    """
    if (
        dtype.numpy.type is np.void
    ):  # bytes without meaning, or a record; a type that NumPy lacks has one field of its name
        return dtype.numpy.names != (dtype.name,) and _is_latin1(dtype.name)
    return dtype.numpy.kind in _DATES or (dtype.numpy.kind in _NUMBERS and dtype.numpy.isbuiltin == 1)


def _is_latin1(text: str) -> bool:
    return text.encode("latin-1", "ignore").decode("latin-1") == text


def check_type(dtype: DType, key: str, file: str) -> None:
    """Checks that ``.npy`` has an element type.

    Raises:
        UnsupportedError: It has none.
    """
    if dtype.is_bytes:
        raise UnsupportedError(
            "a .npy file of strings would be pickled data, which is not safe to load",
            key=key,
            file=file,
            found=str(dtype),
            remedy="print the strings with 'milepost show', also as JSON with --json",
        )
    if not has_type(dtype):
        raise UnsupportedError(
            f"a .npy file has no element type for {dtype}",
            key=key,
            file=file,
            expected="a type of NumPy's own",
            found=str(dtype),
            remedy="pass --as float32, which holds every element of all small types; or --as another type of NumPy",
        )


def header(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    """The beginning of a ``.npy`` file.

    Example:
        >>> header(np.dtype("float32"), (2,))[:6]
        b'\\x93NUMPY'
    """
    text = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        text, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return text.getvalue()


def write(file: IO[bytes], dtype: np.dtype[np.generic], shape: tuple[int, ...], chunks: Iterable[Array]) -> None:
    """Writes an array.

    Args:
        file: Where to.
        dtype: Its element type in the file.
        shape: Its shape.
        chunks: Its elements in the order of memory.
    """
    file.write(header(dtype, shape))
    for chunk in chunks:
        file.write(bytes_of(np.ascontiguousarray(chunk.astype(dtype, copy=False))))
