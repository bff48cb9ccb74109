"""Sizes, ages and numbers as people read them."""

from __future__ import annotations

import functools
import math
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES: Final = ((86_400 * 2, 86_400, "d"), (3600 * 2, 3600, "h"), (60 * 2, 60, "min"))


@functools.lru_cache(maxsize=1024)  # most of very many tensors have one of a few sizes
def size(count: int) -> str:
    """A number of bytes, with a unit.

    Example:
        >>> size(900), size(1536), size(5 << 30)
        ('900 B', '1.5 KiB', '5.0 GiB')
    """
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    return f"{count} B" if not unit else f"{amount:.1f} {_UNITS[unit]}"


def age(seconds: float) -> str:
    """A number of seconds, in the largest unit of which there are two or more.

    Example:
        >>> age(5), age(300), age(200_000)
        ('5 s', '5 min', '2 d')
    """
    for least, unit, name in _AGES:
        if seconds >= least:
            return f"{int(seconds // unit)} {name}"
    return f"{max(0, int(seconds))} s"


def number(value: float) -> str:
    """A number with up to six digits. A whole number of Python is shown whole.

    Example:
        >>> number(1 / 3), number(12345678)
        ('0.333333', '12345678')
    """
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def plural(count: int, noun: str, several: str = "") -> str:
    """A count and its noun.

    Args:
        count: The count.
        noun: The noun for one.
        several: The noun for any other number; by default with an s at its end.

    Example:
        >>> plural(1, "tensor"), plural(1200, "tensor")
        ('1 tensor', '1,200 tensors')
    """
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def difference(count: int, unequal: int, largest: float, relative: float) -> str:
    """How much two tensors differ. Nothing is known of a difference whose count is negative.

    Args:
        count: The number of elements.
        unequal: How many of them are unequal.
        largest: The largest absolute difference.
        relative: The norm of the difference, divided by that of the first tensor.

    Example:
        >>> difference(4, 1, 0.5, 0.25), difference(4, 0, 0.0, 0.0)
        ('max 0.5, relative 0.25, 1 of 4', 'values equal')
    """
    if count < 0:
        return ""
    if not unequal:
        return "values equal"
    size = "" if math.isinf(relative) else f", relative {number(relative)}"
    elements = f", {unequal:,} of {count:,}" if count > 1 else ""
    return f"max {number(largest)}{size}{elements}"
