"""A coordinator on a key-value store that all processes share, as most libraries for distributed training have one.

::

    key    = "milepost/" topic "/" RANK
    value  = 00 message                     under the key
           | 01 COUNT                       under the key; the message is in so many pieces, each under
    piece  = key "/" NUMBER                 from 0 on
"""

from __future__ import annotations

from typing import Final, Protocol

_WHOLE: Final = b"\0"
_IN_PIECES: Final = b"\1"


class KeyValueStore(Protocol):
    """What `StoreCoordinator` needs of a store. All methods may be called from any thread."""

    def set(self, key: str, value: bytes) -> None:
        """Stores a value, and replaces an earlier one."""
        ...

    def get(self, key: str, timeout: float) -> bytes | None:
        """Returns the value of a key, or None if there is none when ``timeout`` seconds have passed."""
        ...

    def delete(self, key: str) -> None:
        """Removes a key. Removing one that is not there does nothing."""
        ...


class StoreCoordinator:
    """A `Coordinator` on a key-value store.

    Args:
        store: The store.
        rank: The number of this process, from 0.
        size: How many processes there are.
        library: What connects them, for messages.
        largest: Bytes of the largest value that is stored; a longer message is stored in pieces. Stores have limits of some
            megabytes.

    Example:
        >>> class Dictionary(dict):
        ...     def set(self, key, value):
        ...         self[key] = value
        ...     def get(self, key, timeout):
        ...         return super().get(key)
        ...     def delete(self, key):
        ...         self.pop(key, None)
        >>> store = Dictionary()
        >>> first, second = (StoreCoordinator(store, rank, 2, "a dictionary") for rank in range(2))
        >>> second.post("greeting", b"hello")
        >>> first.wait("greeting", rank=1, timeout=0)
        b'hello'
    """

    def __init__(self, store: KeyValueStore, rank: int, size: int, library: str, largest: int = 1 << 20) -> None:
        self.rank = rank
        self.size = size
        self.library = library
        self._store = store
        self._largest = largest

    def post(self, topic: str, message: bytes) -> None:
        """Posts a message; see `Coordinator.post`."""
        key = _key(topic, self.rank)
        if len(message) <= self._largest:
            self._store.set(key, _WHOLE + message)
            return
        starts = range(0, len(message), self._largest)
        for number, start in enumerate(starts):
            self._store.set(f"{key}/{number}", message[start : start + self._largest])
        self._store.set(key, _IN_PIECES + str(len(starts)).encode())

    def wait(self, topic: str, rank: int, timeout: float) -> bytes | None:
        """Waits for a message; see `Coordinator.wait`."""
        key = _key(topic, rank)
        value = self._store.get(key, timeout)
        if value is None or value[:1] == _WHOLE:
            return None if value is None else value[1:]
        pieces = [self._store.get(f"{key}/{number}", timeout) for number in range(int(value[1:]))]
        present = [piece for piece in pieces if piece is not None]
        return b"".join(present) if len(present) == len(pieces) else None

    def clear(self, topic: str) -> None:
        """Removes a message of this process; see `Coordinator.clear`."""
        key = _key(topic, self.rank)
        value = self._store.get(key, 0)
        self._store.delete(key)
        if value is not None and value[:1] == _IN_PIECES:
            for number in range(int(value[1:])):
                self._store.delete(f"{key}/{number}")


def _key(topic: str, rank: int) -> str:
    return f"milepost/{topic}/{rank}"
