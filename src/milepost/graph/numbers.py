"""Python's numbers as values, and numbers whose saved type differs from the live type.

A number in a tree may be a Python number in one program and an array without dimensions in another. A step counter, for
example, changes with the first compiled step. So each takes the saved value of the other, if it can hold it.

A learning rate that the program has set to a Python number is a fraction, which an array may have to round. Arrays in trees of JAX
do so, because JAX rounds a Python number wherever it meets an array. Other objects refuse it unless the restore has ``cast``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from milepost.errors import MismatchError, UntrackableError
from milepost.graph.adapter import Array, Value
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType

NUMBERS: Final = {
    bool: DType.of("bool"),
    int: DType.of("int64"),
    float: DType.of("float64"),
    complex: DType.of("complex128"),
}
"""Python's types of numbers, each with the element type in which it is saved."""
FRACTIONS: Final = frozenset({NUMBERS[float], NUMBERS[complex]})
"""The element types of Python's numbers that another element type may have to round."""

_INTEGERS: Final = frozenset(dtype for dtype in DType.all() if dtype.numpy.names is None and "int" in dtype.name)
_FLOATS: Final = frozenset(dtype for dtype in DType.all() if "float" in dtype.name)
_COMPLEX: Final = frozenset(dtype for dtype in DType.all() if "complex" in dtype.name)
_TAKEN_BY_NUMBERS: Final = {bool: frozenset[DType](), int: _INTEGERS, float: _FLOATS | _INTEGERS, complex: _COMPLEX}


def number_value(number: Any) -> Value:
    """A Python number as a value."""
    kind = type(number)
    dtype = NUMBERS[kind]
    return Value(VARIABLE_VALUE, dtype, (), lambda: _as_array(number, dtype), accepts=_TAKEN_BY_NUMBERS[kind])


def _as_array(number: Any, dtype: DType) -> Array:
    try:
        return np.array(number, dtype.numpy)
    except OverflowError:
        raise UntrackableError(
            "a number of more than 64 bits cannot be stored", found=number, remedy="save it as text, in a PythonState"
        ) from None


def number_like(number: Any, array: Array) -> Any:
    """A saved value as a Python number of the type of a live one.

    Raises:
        MismatchError: No number of this type is equal to the saved one.
    """
    # NumPy converts integers to floating point to compare them. Python compares exactly.
    element = int(array[()]) if DType.of(array.dtype) in _INTEGERS else array[()]
    kind = type(number)
    new = kind(element)
    if new != element and element == element:  # NaN is not equal to itself
        raise _does_not_fit(element, array, kind.__name__)
    return new


def taken_by_scalar(dtype: DType) -> frozenset[DType]:
    """Element types of saved Python numbers that a live array without dimensions may take."""
    if dtype in _INTEGERS:
        return frozenset({NUMBERS[int]})
    if dtype in _FLOATS:
        return frozenset({NUMBERS[int], NUMBERS[float]})
    return frozenset({NUMBERS[complex]}) if dtype in _COMPLEX else frozenset()


def scalar_like(dtype: np.dtype[Any], array: Array, *, rounded: bool) -> Array:
    """A saved value as an array without dimensions, with the element type of a live one.

    Args:
        dtype: The live element type.
        array: The saved value.
        rounded: Whether a fraction may be rounded, if it does not become infinite. An integer is never rounded.

    Raises:
        MismatchError: No element of this type is equal to the saved one, or as near as ``rounded`` allows.
    """
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        new = array.astype(dtype)
    saved = array[()]
    is_near = array.dtype.kind in "fc" and bool(np.isfinite(new))
    if new.astype(array.dtype)[()] != saved and saved == saved and not (rounded and is_near):
        raise _does_not_fit(saved, array, str(dtype), "; to round it, pass cast=True to the restore" if is_near else "")
    return new


def _does_not_fit(element: Any, array: Array, live: str, convert: str = "") -> MismatchError:
    return MismatchError(
        "a saved number does not fit the live one",
        expected=f"one that {live} can hold, which is the live type",
        found=f"{element!s}, saved as {array.dtype}",
        remedy=f"give the live number the saved type{convert}",
    )
