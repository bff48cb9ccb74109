"""Which of Python's integers an integer type of NumPy has.

NumPy 2 refuses others. NumPy 1 takes them modulo the number of values of the type, and so changes them without an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def check_bounds(number: Any, dtype: np.dtype[Any]) -> None:
    """Refuses an integer of Python that an integer type does not have. Anything else passes.

    Args:
        number: The value that is to become one of this type.
        dtype: The type.

    Raises:
        OverflowError: The type does not have this integer. NumPy 2 raises the same, with the same words.

    Example:
        >>> check_bounds(255, np.dtype("uint8"))
        >>> check_bounds(1000, np.dtype("uint8"))
        Traceback (most recent call last):
        OverflowError: Python integer 1000 out of bounds for uint8
    """
    if type(number) is int and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= number <= limits.max:
            raise OverflowError(f"Python integer {number} out of bounds for {dtype.name}")
