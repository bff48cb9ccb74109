"""The NumPy types that files describe.

`numpy.dtype` is no reader of text that anybody may have written: some of it divides by zero, which ends the process, and some raises errors of
any kind. So a description is compared with its grammar first::

    description := text | (description, shape) | [field, ...]
    field       := (name, description) | (name, description, shape)
    name        := text | (text, text)
    text        := order? letters digits? ("[" digits? unit "]")?

Source: ``numpy/lib/_format_impl.py`` of NumPy 2, ``descr_to_dtype`` and ``dtype_to_descr``.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

_TEXT: Final = re.compile(
    r"[<>=|]?(?:[A-Za-z]{1,16}|\?)([0-9]{0,10})(?:\[[0-9]{0,9}(?:[YMWDhms]|[munpfa]s|generic)\])?"
)
_LONGEST: Final = 1 << 29
"""No text or bytes are so long. NumPy counts characters of four bytes in 32 bits, and some versions of it go on from zero."""
_DEEPEST: Final = 16
_MOST_FIELDS: Final = 1 << 12
_MOST_DIMENSIONS: Final = 32


def numpy_type(description: Any) -> np.dtype[Any]:
    """The type that a file describes.

    Args:
        description: What the file has.

    Raises:
        ValueError: It describes no type.

    Example:
        >>> numpy_type("<f4"), numpy_type([("x", "<i2"), ("y", "<M8[ns]", (2,))])
        (dtype('float32'), dtype([('x', '<i2'), ('y', '<M8[ns]', (2,))]))
        >>> numpy_type("m8[s/0]")
        Traceback (most recent call last):
        ValueError: not the description of a NumPy type: 'm8[s/0]'
    """
    if _is_description(description, 0):
        try:
            return np.lib.format.descr_to_dtype(description)
        except (ValueError, TypeError, SyntaxError, KeyError, OverflowError, MemoryError):
            pass
    raise ValueError(f"not the description of a NumPy type: {description!r:.80}") from None


def _is_description(value: Any, depth: int) -> bool:
    if isinstance(value, str):
        match = _TEXT.fullmatch(value)
        return match is not None and int(match[1] or 0) < _LONGEST
    if depth > _DEEPEST:
        return False
    if isinstance(value, tuple):
        return len(value) == 2 and _is_description(value[0], depth + 1) and _is_shape(value[1])
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MOST_FIELDS
        and all(
            isinstance(field, tuple)
            and len(field) in (2, 3)
            and _is_name(field[0])
            and _is_description(field[1], depth + 1)
            and all(map(_is_shape, field[2:]))
            for field in value
        )
    )


def _is_name(value: Any) -> bool:
    if isinstance(value, tuple):
        return len(value) == 2 and all(isinstance(each, str) for each in value)
    return isinstance(value, str)


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and 0 < len(value) <= _MOST_DIMENSIONS
        and all(type(length) is int and length >= 0 for length in value)
    )
