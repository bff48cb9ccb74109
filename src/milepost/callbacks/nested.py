"""State of other objects as one text that includes arrays; see `milepost.plain_state.encoding`."""

from __future__ import annotations

from typing import Any

from milepost.plain_state.decoding import from_text
from milepost.plain_state.encoding import store_inline, to_text


def to_json(value: Any, key: str) -> str:
    """Writes nested state as JSON.

    Args:
        value: The state.
        key: The name of the state in errors.

    Raises:
        UnsupportedError: Something in the state is not plain data.

    Example:
        >>> from_json(to_json({"position": (3, b"ab")}, "reader"))
        {'position': (3, b'ab')}
    """
    return to_text(value, key, store_inline)


def from_json(text: str) -> Any:
    """The state from which `to_json` made a text.

    Raises:
        CorruptCheckpointError: The text is not from `to_json`.
    """
    return from_text(text, {})
