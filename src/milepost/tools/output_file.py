"""Files that commands write: a file appears under its name when it is whole, and not before."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from milepost.errors import StorageError


@contextlib.contextmanager
def replaced(path: str) -> Iterator[BinaryIO]:
    """Opens a file for writing. It takes the place of the present one when the body ends without an error.

    Args:
        path: Its path. A device or a pipe, such as ``/dev/stdout``, is written directly.

    Raises:
        StorageError: It cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with _explained(path), open(path, "wb") as file:
            yield file
        return
    with _explained(path):
        directory, name = os.path.split(os.path.realpath(path))
        if os.path.isdir(path):
            raise IsADirectoryError(21, "it is a directory")
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name[:64]}-", dir=directory or ".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        with _explained(path):
            os.chmod(temporary, _mode())
            os.replace(temporary, os.path.join(directory, name))
    except BaseException:
        with contextlib.suppress(OSError):  # the error that is raised matters more than a file that stays
            os.remove(temporary)
        raise


def write_text(path: str, text: str) -> None:
    """Writes a text file in UTF-8. Errors are those of `replaced`."""
    with replaced(path) as file, _explained(path):
        file.write(text.encode(errors="backslashreplace"))


def _mode() -> int:
    """The mode of a new file."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (StorageError, BrokenPipeError):
        raise
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        raise StorageError(
            "cannot write this file",
            errno=number,
            file=path,
            found=error.strerror if isinstance(error, OSError) else str(error),
            remedy="pass the path of a file in an existing directory that you may write to",
        ) from error
