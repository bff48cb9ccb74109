"""Converts values to the element type of their variable, without changing them.

Only rounding to the precision of a floating-point type is allowed. So 2.0 becomes an ``int32`` and 0.93 does not; 1
becomes a ``bool`` and 2 does not; 1e300 does not become a ``float32``, because it would be infinite.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from milepost.errors import MismatchError
from milepost.graph.adapter import Array
from milepost.tensor import DType

_MOST_SHOWN: Final = 60
_ROUNDING_NEVER_EXCEEDS: Final = 2.0
"""How far a value may exceed the largest number of a type that has no infinity. It then becomes that largest number."""


def array_of(value: Any) -> Array:
    """The NumPy array of a value.

    Raises:
        MismatchError: NumPy cannot make an array of it, for example of lists that differ in length.

    Example:
        >>> array_of([[1, 2], [3, 4]]).shape
        (2, 2)
    """
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise MismatchError(
            f"NumPy cannot make an array of this value: {error}",
            expected="a number, or nested lists or an array of numbers",
            found=_shown(value),
            remedy="give all lists of one level the same length, or hold each in a variable of its own",
        ) from None


def converted(value: Any, dtype: DType) -> Array:
    """A number, or nested lists or an array of numbers, as an array of another element type.

    Args:
        value: Anything `numpy.asarray` accepts.
        dtype: The element type wanted, one of numbers.

    Returns:
        A new array, or the given array if it already has this type.

    Raises:
        MismatchError: The value is not a number, or has no equal in this type.

    Example:
        >>> converted(2.0, DType.of("int32"))
        array(2, dtype=int32)
    """
    source = array_of(value)
    wanted = dtype.numpy
    if source.dtype == wanted:
        return source
    if wanted.fields is not None or source.dtype.fields is not None:
        raise _refusal("has another type", value, dtype, f"assign an array of {dtype.name}")
    if source.dtype == object and all(type(each) is int for each in source.reshape(-1).tolist()):
        try:
            source = source.astype(np.float64)
        except OverflowError:
            remedy = "hold it as text in a milepost.PythonState"
            raise _refusal("is too large for any number type", value, dtype, remedy) from None
    if not (source.dtype.kind in "biufc" or _is_extension(source.dtype)):
        raise _refusal("is not a number", value, dtype, "convert it to a number first")
    if np.iscomplexobj(source) and wanted.kind != "c":
        if np.any(source.imag != 0):
            raise _refusal(
                "has an imaginary part",
                value,
                dtype,
                "assign its real part, or make the variable with the dtype 'complex128'",
            )
        source = source.real
    if dtype.name == "bool" or "int" in dtype.name:
        _check_integers(source, value, dtype)
    with np.errstate(all="ignore"):
        result: Array = source.astype(wanted)
    if dtype.name != "bool" and "int" not in dtype.name:
        _check_rounded(source, result, value, dtype)
    return result


def _check_integers(source: Array, value: Any, dtype: DType) -> None:
    if not source.size:
        return
    if _is_extension(source.dtype):
        source = source.astype(np.float64)  # exact: all of them are smaller
    if source.dtype.kind == "f" and not np.all(np.isfinite(source) & (source == np.floor(source))):
        remedy = "make the variable as Variable(0.0)"
        if np.isfinite(source).all():
            remedy += f", or assign {'True or False' if dtype.name == 'bool' else 'int(value)'}"
        raise _refusal("is not a whole number", value, dtype, remedy)
    lowest, highest = (0, 1) if dtype.name == "bool" else _limits(dtype)
    least, most = int(source.min()), int(source.max())
    if not (lowest <= least and most <= highest):
        remedy = f"make the variable with the dtype {_wide_enough(least, most)!r}"
        if dtype.name == "bool":
            remedy += ", or assign True or False"
        raise _refusal(f"is not between {lowest} and {highest}", value, dtype, remedy)


def _wide_enough(least: int, most: int) -> str:
    for name in ("int32", "int64", "uint64"):
        limits = np.iinfo(name)
        if limits.min <= least and most <= limits.max:
            return name
    return "float64"


def _limits(dtype: DType) -> tuple[int, int]:
    limits: Any = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return int(limits.min), int(limits.max)


def _check_rounded(source: Array, result: Array, value: Any, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        parts = [(source, result)]
        if result.dtype.kind == "c":
            parts = [(source.real, result.real), (source.imag, result.imag)]
        for before, after in parts:
            if after.dtype.itemsize > 2 and np.isfinite(after).all():
                continue
            largest: Any = ml_dtypes.finfo(after.dtype).max  # type: ignore[no-untyped-call]
            beyond = _ROUNDING_NEVER_EXCEEDS * float(largest)
            wide = before.astype(np.float64)
            kept = (np.isfinite(after) & (np.abs(wide) <= beyond)) | (np.isnan(wide) & np.isnan(after))
            kept |= np.isinf(wide) & np.isinf(after) & (np.sign(wide) == np.sign(after.astype(np.float64)))
            if not kept.all():
                wider = "complex128" if result.dtype.kind == "c" else "float64"
                raise _refusal("is too large", value, dtype, f"make the variable with the dtype {wider!r}")


def _is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether this is a type of ml_dtypes, such as bfloat16, float8 or int4."""
    return dtype.type.__module__ == "ml_dtypes"


def _refusal(what: str, value: Any, dtype: DType, remedy: str) -> MismatchError:
    return MismatchError(
        f"this value {what}, so it cannot be stored as {dtype.name}",
        expected=f"a value that {dtype.name} has too",
        found=_shown(value),
        remedy=remedy,
    )


def _shown(value: Any) -> str:
    text = " ".join((ascii(value) if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
