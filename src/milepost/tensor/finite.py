"""Whether numbers are finite: the floating-point and complex numbers of NumPy and ml_dtypes.

A sum of numbers is finite only if all of them are. If it is not, each number is looked at, because a sum of finite numbers may be too large. Types of
16 bits are compared by the bits of their exponents, and those of 8 bits in a table, since NumPy computes with them slowly.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

_EXPONENTS: Final = {"float16": 0x7C00, "bfloat16": 0x7F80}
_SUMMED: Final = ("float32", "float64", "complex64", "complex128")
_COMPLEX: Final = "W"
"""The kind of the complex numbers of ml_dtypes."""


class Nonfinite(NamedTuple):
    """What an array holds that is not finite.

    Attributes:
        nan: Whether it holds NaN.
        infinity: Whether it holds infinity.
    """

    nan: bool
    infinity: bool


FINITE: Final = Nonfinite(nan=False, infinity=False)


@lru_cache(maxsize=256)
def can_be_nonfinite(dtype: np.dtype[Any]) -> bool:
    """Whether elements of a type may be NaN or infinity.

    Example:
        >>> import ml_dtypes
        >>> [can_be_nonfinite(np.dtype(each)) for each in ("float32", ml_dtypes.bfloat16, "int64", "O")]
        [True, True, False, False]
    """
    if dtype.kind in "fc":
        return True
    if dtype.fields is not None or dtype.kind in "biuOSUMm":
        return False
    try:
        if str(dtype.kind) != _COMPLEX:
            ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        np.isfinite(np.zeros(1, dtype))
    except (TypeError, ValueError, KeyError):
        return False
    return True


def is_finite(array: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are finite.

    Args:
        array: Elements that may be NaN or infinity, in one piece of memory. Some megabytes at a time are fastest, because they stay in the cache.

    Example:
        >>> is_finite(np.array([1.0, -3e38], np.float32)), is_finite(np.array([1.0, np.nan]))
        (True, False)
    """
    flat, name = array.reshape(-1), array.dtype.name
    with np.errstate(all="ignore"):
        if name in _SUMMED:
            return bool(np.isfinite(flat.sum())) or bool(np.isfinite(flat).all())
        if name in _EXPONENTS and array.dtype.isnative:
            exponents = np.bitwise_and(flat.view(np.uint16), np.uint16(_EXPONENTS[name]))
            return not flat.size or int(exponents.max()) != _EXPONENTS[name]
        if array.dtype.itemsize == 1:
            return not _table(array.dtype)[flat.view(np.uint8)].any()
        return bool(np.isfinite(flat).all())


def nonfinite_in(array: np.ndarray[Any, Any]) -> Nonfinite:
    """What is not finite in an array. The argument is that of `is_finite`.

    Example:
        >>> nonfinite_in(np.array([1.0, -np.inf]))
        Nonfinite(nan=False, infinity=True)
    """
    if is_finite(array):
        return FINITE
    return Nonfinite(bool(np.isnan(array).any()), bool(np.isinf(array).any()))


@lru_cache(maxsize=64)
def _table(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Whether the element with each byte is NaN or infinity."""
    finite: np.ndarray[Any, Any] = np.isfinite(np.arange(256, dtype=np.uint8).view(dtype))
    return ~finite
