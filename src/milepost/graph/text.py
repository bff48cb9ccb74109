"""Python's text as values of trees: strings without dimensions, in the field that TensorFlow skips."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from milepost.errors import MismatchError
from milepost.graph.adapter import Array, Value
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.variable import as_array
from milepost.tensor.dtype import STRING

TEXTS: Final = frozenset({str, bytes})
"""Python's types of text."""


def text_value(text: str | bytes) -> Value:
    """Text as a value. A ``str`` is stored in UTF-8."""
    return Value(VARIABLE_VALUE, STRING, (), partial(as_array, text), skipped_by_tensorflow=True)


def text_like(text: Any, array: Array) -> Any:
    """A saved value as text of the type of a live one.

    Raises:
        MismatchError: The saved bytes are not UTF-8, and the live value is a ``str``.
    """
    saved: bytes = array.item()
    if type(text) is bytes:
        return saved
    try:
        return saved.decode()
    except UnicodeDecodeError:
        raise MismatchError(
            "the saved bytes are not UTF-8 text, but the live value is a str",
            expected="UTF-8",
            found=repr(saved)[:80],
            remedy="give the live value the type bytes",
        ) from None
