"""Parses JSON that other programs wrote, with limits of time and memory.

Limits: a text may have 256 MiB, and 4,000,000 lists and objects. Python's parser limits its depth to some hundreds or thousands of
levels, depending on the version. An object takes at least 64 bytes of memory and 2 bytes of text. So a text takes at most 256 MiB for
its objects and about 20 times its own length.
"""

from __future__ import annotations

import json
import re
import reprlib
from typing import Any, Final

from milepost.errors import CorruptCheckpointError, UnsupportedError

LONGEST: Final = 256 << 20
_MOST: Final = 4_000_000
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
"""Texts, in which brackets mean nothing, and brackets."""


def parse_json(data: bytes, what: str) -> Any:
    """Parses a JSON text.

    Args:
        data: The text, UTF-8.
        what: What errors call the text.

    Raises:
        CorruptCheckpointError: It is not JSON, has a name twice in one object, or has too many levels.
        UnsupportedError: It is too long, or has too many lists and objects.

    Example:
        >>> parse_json(b'{"a": [1, 2]}', "the header")
        {'a': [1, 2]}
    """
    count = data.count(b"[") + data.count(b"{")
    if count > _MOST or len(data) > LONGEST:
        raise UnsupportedError(
            f"{what} is too large",
            expected=f"{_MOST} lists and objects or fewer, in {LONGEST} bytes or less",
            found=f"{count} in {len(data)} bytes",
            remedy="save the state in several files",
        )
    try:
        return json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise CorruptCheckpointError(
            f"{what} has lists or objects inside each other, too many levels deep to be read",
            expected="a few levels",
            found=f"{_levels(data)} levels",
        ) from None
    except ValueError as error:
        raise CorruptCheckpointError(
            f"{what} is not JSON", expected="JSON text in UTF-8", found=f"{error!s:.200}"
        ) from None


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """Parses a JSON text that is an object. Arguments and errors are those of `parse_json`."""
    value = parse_json(data, what)
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"{what} is not a JSON object", found=reprlib.repr(value))
    return value


def _levels(data: bytes) -> int:
    """How many lists and objects of a JSON text are inside each other."""
    level = deepest = 0
    for match in _BRACKETS.finditer(data):
        if match[0][:1] in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif match[0] in (b"]", b"}"):
            level -= 1
    return deepest


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name that occurs twice")
    return members
