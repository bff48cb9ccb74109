"""Checks the keys of dicts and members of sets that a file contains.

A dict compares a new key with all keys of the same hash, so n keys with one hash take n * n steps. The hashes of text and byte strings
differ between processes, and small integers have different hashes. Of other keys, the author of a file can choose the hashes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_OWN_HASH: Final = (1 << 61) - 1
"""Integers below this have different hashes."""
_MOST_ALIKE: Final = 100


class KeyCheck:
    """Refuses too many different keys with one hash.

    Example:
        >>> check = KeyCheck()
        >>> check.add(["a", 1, (1, 2)])
        >>> check.add(number * ((1 << 61) - 1) for number in range(1000))
        Traceback (most recent call last):
        ...
        ValueError: more than 100 different keys with one hash
    """

    def __init__(self) -> None:
        self._first: dict[int, Any] = {}
        self._others: dict[int, list[Any]] = {}

    def add(self, keys: Iterable[Any]) -> None:
        """Checks more keys.

        Raises:
            ValueError: More than 100 different keys, with those of earlier calls, have the same hash.
            TypeError: A key has no hash.
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
                    raise ValueError(f"more than {_MOST_ALIKE} different keys with one hash")
