"""Errors that several parts of this layer raise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from milepost.coding.crc32c import mask
from milepost.errors import CorruptCheckpointError, KeyNotFoundError, import_if_possible

_MOST_COMPARED: Final = 5000
"""The largest number of keys to compare with a wrong one. More would make the error take seconds."""
_MOST_NAMED: Final = 3
_ATTRIBUTES: Final = "/.ATTRIBUTES/"
"""The marker in keys. The text after it is the same in nearly all keys, so it is not compared."""


def no_such_key(key: object, keys: Sequence[str], file: str) -> KeyNotFoundError:
    """The error for a key that does not exist. It names similar keys."""
    close: Sequence[str] = ()
    if isinstance(key, str):
        close = [other for other in keys if other.startswith(key + "/")][:3]
        ends = f"/{key}", f".{key}"
        close = close or [other for other in keys if other.partition(_ATTRIBUTES)[0].endswith(ends)][:3]
        close = close or [other for other in keys if f"/{key}/" in other][:3]
        close = close or _alike(key, keys[:_MOST_COMPARED])
    if close:
        remedy = "did you mean " + " or ".join(map(repr, close)) + "?"
    else:
        remedy = f"list the {len(keys)} keys with keys() of the reader or milepost.list_variables()"
    return KeyNotFoundError("the checkpoint has no such key", key=key, file=file, remedy=remedy)


def _alike(key: str, keys: Sequence[str]) -> list[str]:
    """The keys of objects whose paths are similar to that of a wrong key, or keys below such a path."""
    difflib = import_if_possible("difflib")  # only errors need it
    if difflib is None:
        return []
    wanted = key.partition(_ATTRIBUTES)[0]
    paths: dict[str, str] = {}
    for other in keys:
        paths.setdefault(other.partition(_ATTRIBUTES)[0], other)
    close = [paths[path] for path in difflib.get_close_matches(wanted, paths)]
    if close:
        return close
    above: dict[str, list[str]] = {}
    for path, other in paths.items():
        for separator in re.finditer("[/.]", path):
            above.setdefault(path[: separator.start()], []).append(other)
    return [other for path in difflib.get_close_matches(wanted, above, 1) for other in above[path][:_MOST_NAMED]]


def wrong_checksum(key: str, file: str, offset: int, expected: int, found: int) -> CorruptCheckpointError:
    """The error for a tensor whose bytes differ from those that were written.

    Args:
        key: The tensor.
        file: The file.
        offset: The position of its first byte in the file.
        expected: The checksum in the entry, masked.
        found: The checksum of the bytes, not masked.
    """
    return CorruptCheckpointError(
        f"the tensor at byte {offset} is damaged: wrong checksum",
        key=key,
        file=file,
        expected=f"{expected:#010x}",
        found=f"{mask(found):#010x}",
    )
