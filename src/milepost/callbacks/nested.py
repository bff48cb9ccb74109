"""State of other people's objects as one text, in which arrays are too; see `milepost.plain_state.encoding`."""

from __future__ import annotations

from typing import Any

from milepost.plain_state.encoding import from_text, store_inline, to_text


def to_json(value: Any, key: str) -> str:
    """Writes nested state as JSON.

    Args:
        value: The state.
        key: What to call it in errors.

    Raises:
        UnsupportedError: There is something in it that is no plain data.

    Example:
        >>> from_json(to_json({"position": (3, b"ab")}, "reader"))
        {'position': (3, b'ab')}
    """
    return to_text(value, key, store_inline)


def from_json(text: str) -> Any:
    """What `to_json` was given.

    Raises:
        CorruptCheckpointError: It is no such text.
    """
    return from_text(text, {})
