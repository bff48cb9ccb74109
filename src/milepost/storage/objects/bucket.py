"""The requests that a bucket of an object store answers.

Each request takes effect as a whole or not at all, and is durable when it is answered. Reads and lists see every earlier answered write. Keys are
text with ``/`` between names. Errors are those of the operating system, and nothing else:

==========================  ========================================================================
`FileNotFoundError`         there is no such object, or no such bucket
`FileExistsError`           the condition of the request does not hold, or another request is changing the object right now
`TimeoutError`,             the store does not answer, or asks to be asked later. It is not known whether the request has taken effect
`ConnectionError`
`PermissionError`           the store does not allow it
`OSError`                   the store refuses the request for another reason
==========================  ========================================================================
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Head(NamedTuple):
    """What is known of an object without its bytes.

    Attributes:
        size: The number of its bytes.
        modified: When it was written, in seconds since the epoch by the clock of the store.
        version: A text that is another one after each write of other bytes.
    """

    size: int
    modified: float
    version: str


class Names(NamedTuple):
    """What lies directly below a folder.

    Attributes:
        objects: The names of objects.
        folders: The names of folders, which are parts of the keys of objects.
    """

    objects: list[str]
    folders: list[str]


class Upload(Protocol):
    """An object that is sent in parts. It appears as a whole when the upload is completed."""

    def send(self, part: bytes) -> None:
        """Sends the next part, which nobody changes."""
        ...

    def complete(self) -> None:
        """Makes the object, and replaces one that has its key."""
        ...

    def abort(self) -> None:
        """Drops what was sent."""
        ...


class Bucket(Protocol):
    """A bucket. All methods may be called from any thread."""

    def head(self, key: str) -> Head:
        """What is known of an object."""
        ...

    def read(self, key: str, most: int) -> tuple[Head, bytes | None]:
        """What is known of an object, and its bytes if there are at most so many, by one request."""
        ...

    def get(self, key: str, start: int, stop: int, version: str) -> bytes:
        """A range of bytes of an object, if it has this version. The range is not empty, and lies in the object."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Writes an object, whatever is there."""
        ...

    def create(self, key: str, data: bytes) -> None:
        """Writes an object, if there is none."""
        ...

    def exchange(self, key: str, data: bytes, version: str) -> None:
        """Writes an object, if it has this version."""
        ...

    def upload(self, key: str) -> Upload:
        """Begins to send an object in parts."""
        ...

    def delete(self, key: str) -> None:
        """Deletes an object. Does nothing if there is none."""
        ...

    def list(self, folder: str) -> Names:
        """What lies directly below a folder, whose key ends with ``/`` or is empty."""
        ...
