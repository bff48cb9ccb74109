"""Keys of dicts and members of sets that a file chose.

A dict compares a new key with all others of the same hash, so n keys of one hash take n * n steps. Hashes of text and byte
strings differ from process to process, and small integers are their own; those of other keys can be chosen by whoever writes
the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_OWN_HASH: Final = (1 << 61) - 1
"""Integers below this have hashes of their own."""
_MOST_ALIKE: Final = 100


class KeyCheck:
    """Refuses very many different keys of one hash.

    Example:
        >>> check = KeyCheck()
        >>> check.add(["a", 1, (1, 2)])
        >>> check.add(number * ((1 << 61) - 1) for number in range(1000))
        Traceback (most recent call last):
        ...
        ValueError: more than 100 different keys of one hash
    """

    def __init__(self) -> None:
        self._first: dict[int, Any] = {}
        self._others: dict[int, list[Any]] = {}

    def add(self, keys: Iterable[Any]) -> None:
        """Takes note of keys.

        Raises:
            ValueError: More than 100 different ones have the same hash.
            TypeError: One has no hash.
        """
        for key in keys:
            kind = type(key)
            if kind is str or kind is bytes or (kind is int and -_OWN_HASH < key < _OWN_HASH):
                continue
            digest = hash(key)
            first = self._first.setdefault(digest, key)
            if first is key or first == key:
                continue
            others = self._others.setdefault(digest, [])
            if key not in others:
                others.append(key)
                if len(others) >= _MOST_ALIKE:
                    raise ValueError(f"more than {_MOST_ALIKE} different keys of one hash")
