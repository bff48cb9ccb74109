"""A model of an object store that fails, loses answers and stops as a test requires.

What a store has answered is durable, so the state after a kill is that after one of the requests. A test lets a save run up to each of them, or lets
another process act there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from milepost.storage.objects.bucket import Head, Names
from milepost.storage.objects.memory_bucket import MemoryBucket

T = TypeVar("T")


class Killed(BaseException):
    """The process was killed at this request."""


class FaultyBucket(MemoryBucket):
    """A bucket in memory that counts its requests.

    Attributes:
        requests: What was asked: the name of each request and its key.
        before: A function that is called with the number of each request before it takes effect. What it raises ends the request.
        after: A function that is called with the number of each request after it has taken effect.

    Example:
        >>> bucket = FaultyBucket()
        >>> bucket.lose(0)
        >>> bucket.put("a", b"1")
        Traceback (most recent call last):
        TimeoutError: [Errno 110] Connection timed out
        >>> bucket.head("a").size, bucket.requests
        (1, ['put a', 'head a'])
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []
        self.before: Callable[[int], object] = lambda _: None
        self.after: Callable[[int], object] = lambda _: None

    def kill_at(self, number: int, *, applied: bool = False) -> None:
        """Kills the process at a request, which takes effect or not. The requests of a dead process have no effect."""

        def kill(at: int) -> None:
            if at > number or (at == number and not applied):
                raise Killed

        def die(at: int) -> None:
            if at == number and applied:
                raise Killed

        self.before, self.after = kill, die

    def lose(self, number: int) -> None:
        """Loses the answer to a request."""

        def lose(at: int) -> None:
            if at == number:
                raise _no_answer()

        self.after = lose

    def refuse(self, number: int) -> None:
        """Loses a request."""

        def refuse(at: int) -> None:
            if at == number:
                raise _no_answer()

        self.before = refuse

    def head(self, key: str) -> Head:
        return self._do("head", key, lambda: MemoryBucket.head(self, key))

    def read(self, key: str, most: int) -> tuple[Head, bytes | None]:
        return self._do("read", key, lambda: MemoryBucket.read(self, key, most))

    def get(self, key: str, start: int, stop: int, version: str) -> bytes:
        return self._do("get", key, lambda: MemoryBucket.get(self, key, start, stop, version))

    def put(self, key: str, data: bytes) -> None:
        self._do("put", key, lambda: self._write(key, data))

    def create(self, key: str, data: bytes) -> None:
        self._do("create", key, lambda: self._write(key, data, is_new=True))

    def exchange(self, key: str, data: bytes, version: str) -> None:
        self._do("exchange", key, lambda: self._write(key, data, version))

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: MemoryBucket.delete(self, key))

    def list(self, folder: str) -> Names:
        return self._do("list", folder, lambda: MemoryBucket.list(self, folder))

    def _do(self, name: str, key: str, request: Callable[[], T]) -> T:
        number = len(self.requests)
        self.requests.append(f"{name} {key}")
        self.before(number)
        answer = request()
        self.after(number)
        return answer


def _no_answer() -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
