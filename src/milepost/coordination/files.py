"""A coordinator on files of a directory that all processes share, for programs that no library connects.

::

    message = DIRECTORY/NAME "." RANK ".message"     NAME is the topic, with "/" written as "+"
    before  = the same with ".part" at its end       until it is whole

Such programs are started by Ray, by a batch system, or as plain processes.
"""

from __future__ import annotations

import os
from contextlib import suppress

from milepost.coordination.polling import poll
from milepost.errors import StorageError, UnsupportedError

_SHORTEST, _LONGEST = 0.005, 0.25
"""Seconds between two looks for a file: few at first, then more."""


class FileCoordinator:
    """A `Coordinator` on files.

    Args:
        directory: A directory that all processes see and that this run alone uses. It is made if it does not exist.
            Two runs at the same time would mistake each other's messages for their own, so give each run its own directory,
            for example by its job number.
        rank: The number of this process, from 0.
        size: How many processes there are.

    Raises:
        UnsupportedError: ``rank`` is not a whole number from 0 to ``size - 1``.
        StorageError: The directory cannot be made.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp() + "/job-17"
        >>> first, second = (FileCoordinator(directory, rank, 2) for rank in range(2))
        >>> second.post("greeting", b"hello")
        >>> first.wait("greeting", rank=1, timeout=1)
        b'hello'
        >>> second.clear("greeting")
        >>> first.wait("greeting", rank=1, timeout=0) is None
        True
    """

    library = "milepost.coordination.FileCoordinator"

    def __init__(self, directory: str | os.PathLike[str], rank: int, size: int) -> None:
        numbers = {"rank": rank, "size": size}
        for name, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int):
                raise _unusable(name, "a whole number", repr(number))
        if not 0 <= rank < size:
            raise _unusable("rank", f"from 0 to {size - 1}, for {size} processes", str(rank))
        self.rank = rank
        self.size = size
        self._directory = os.fspath(directory)
        try:
            os.makedirs(self._directory, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the directory of the messages: {error.strerror}",
                errno=error.errno,
                file=str(directory),
                remedy="name a directory on shared storage that all processes can write",
            ) from error

    def post(self, topic: str, message: bytes) -> None:
        """Posts a message; see `Coordinator.post`."""
        path = self._path(topic, self.rank)
        part = f"{path}.part"
        with open(part, "wb") as file:
            file.write(message)
        os.replace(part, path)

    def wait(self, topic: str, rank: int, timeout: float) -> bytes | None:
        """Waits for a message; see `Coordinator.wait`."""
        path = self._path(topic, rank)

        def look() -> bytes | None:
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

        return poll(look, timeout, _SHORTEST, _LONGEST)

    def clear(self, topic: str) -> None:
        """Removes a message of this process; see `Coordinator.clear`."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(topic, self.rank))

    def _path(self, topic: str, rank: int) -> str:
        return os.path.join(self._directory, f"{topic.replace('/', '+')}.{rank}.message")


def _unusable(name: str, expected: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        "this argument cannot be used",
        key=name,
        expected=expected,
        found=found,
        remedy="pass the number of this process and how many there are, for example those of the batch system",
    )
