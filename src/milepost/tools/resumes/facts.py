"""What is recorded of one value of a program."""

from __future__ import annotations

import enum
import hashlib
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

Kind = Literal["random", "iterator", "object", "value"]
"""State of random numbers; a position in data; an array or another value of an object; a value of the program."""
SCALARS: Final = (bool, int, float, complex, str, bytes, type(None), np.generic, enum.Enum)
PLAIN: Final = (list, tuple, set, frozenset, deque, dict)
_MOST_BYTES: Final = 1 << 22
"""The bytes of an array of which a digest is made. Of a larger array, elements at equal distances are taken."""
_LONGEST: Final = 40
"""Characters of a value in a message."""


class Recorded(NamedTuple):
    """What is recorded of one value.

    Attributes:
        kind: What it is.
        digest: Equal for equal values.
        text: The value, or what it is, in a few words.
        group: The name of the object that holds it, under which it is reported.
        group_kind: The class of that object.
        is_saved: Whether the value, or the object of the library that holds it, is in the checkpoint.
    """

    kind: Kind
    digest: str
    text: str
    group: str
    group_kind: str
    is_saved: bool = False


def digest_of(parts: Iterable[bytes]) -> str:
    """A digest of some bytes."""
    made = hashlib.blake2b(digest_size=12)
    for part in parts:
        made.update(part)
    return made.hexdigest()


def of_array(array: Any) -> tuple[str, str]:
    """The digest of an array, and its value in a few words.

    Example:
        >>> of_array(np.zeros((2, 3), np.float32))[1], of_array(np.array(0.5))[1]
        ('float32[2,3]', '0.5')
    """
    array = np.asarray(array)
    flat = array.reshape(-1)
    if array.nbytes > _MOST_BYTES:
        flat = flat[:: -(-array.nbytes // _MOST_BYTES)]
    data = repr(flat.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(flat).tobytes()
    text = short(array.item()) if array.size == 1 else f"{array.dtype}[{','.join(map(str, array.shape))}]"
    return digest_of([f"{array.dtype}{array.shape}".encode(), data]), text


def of_plain(value: Any) -> tuple[str, str] | None:
    """The digest and the text of a number, of text, or of a container of these; None for anything else.

    Example:
        >>> of_plain([0.5, 0.25])[1], of_plain(list(range(100)))[1], of_plain([object()])
        ('[0.5, 0.25]', 'a list of 100', None)
    """
    if isinstance(value, SCALARS):
        return digest_of([f"{type(value).__name__} {value!r}".encode("utf-8", "backslashreplace")]), short(value)
    if not isinstance(value, PLAIN) or not all(isinstance(each, SCALARS) for each in _members(value)):
        return None
    texts: Sequence[str] = [repr(each) for each in _members(value)]
    if isinstance(value, (set, frozenset)):
        texts = sorted(texts)  # the order depends on the process
    digest = digest_of(text.encode("utf-8", "backslashreplace") + b"\n" for text in (type(value).__name__, *texts))
    whole = repr(value)
    return digest, whole if len(whole) <= _LONGEST else f"a {type(value).__name__} of {len(value)}"


def _members(value: Any) -> Iterable[Any]:
    return itertools.chain.from_iterable(value.items()) if isinstance(value, dict) else value


def short(value: Any) -> str:
    """A value in at most a few dozen characters."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
