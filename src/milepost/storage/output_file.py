"""Files and directories that a conversion or a command writes: each appears under its name when it is whole, and not before."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final

from milepost.errors import CheckpointExistsError, MilepostError, StorageError

_DESCRIPTOR: Final = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,6})")
_STANDARD: Final = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def is_written_to(path: str) -> bool:
    """Whether a path names a device, a pipe or an open file of this process, such as ``/dev/stdout``, which is written to and not replaced."""
    return _descriptor(path) is not None or (
        os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    )


def _descriptor(path: str) -> int | None:
    """The number of the open file of this process that a path names."""
    match = _DESCRIPTOR.fullmatch(path)
    return int(match[1]) if match else _STANDARD.get(path)


def check_free(paths: Sequence[str], target: str = "") -> None:
    """Checks that nothing would be replaced. What `is_written_to` is never replaced.

    Args:
        paths: The files.
        target: What the user calls them, if they are several.

    Raises:
        CheckpointExistsError: Something is there.
    """
    for path in paths:
        if os.path.lexists(path) and not is_written_to(path):
            raise CheckpointExistsError(
                f"this {'directory' if os.path.isdir(path) else 'file'} exists, and is not replaced unless you say so",
                file=path,
                found=f"a part of {target}, as it was written before" if target not in ("", path) else None,
                remedy="pass overwrite=True, which replaces all of it, or another name",
            )


@contextlib.contextmanager
def replaced(path: str) -> Iterator[BinaryIO]:
    """Opens a file for writing. It takes the place of the present one when the body ends without an error.

    Args:
        path: Its path. What `is_written_to` is written directly.

    Raises:
        StorageError: It cannot be written.
    """
    if is_written_to(path):
        number = _descriptor(path)
        with _explained(path), open(path if number is None else os.dup(number), "wb") as file:
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


@contextlib.contextmanager
def replaced_directory(path: str, is_ours: Callable[[str], bool]) -> Iterator[str]:
    """Makes a directory. It takes the place of the present one when the body ends without an error.

    Args:
        path: Its path.
        is_ours: Whether the present directory may be removed: it is of the kind that is written.

    Yields:
        The directory to fill.

    Raises:
        CheckpointExistsError: Something else is there.
        StorageError: It cannot be written.
    """
    if os.path.lexists(path) and not is_ours(path):
        raise CheckpointExistsError(
            "something of another kind exists under this path; it was not replaced",
            file=path,
            expected="nothing, or a directory of the format that is written",
            remedy="pass another path, or remove what is there",
        )
    parent, name = os.path.split(os.path.realpath(path))
    with _explained(path):
        temporary = tempfile.mkdtemp(prefix=f".{name[:64]}-", dir=parent)
    try:
        with _explained(path):
            yield temporary
            os.chmod(temporary, 0o777 & ~_umask())
            old = f"{temporary}.old"
            present = os.path.join(parent, name)
            if os.path.lexists(present):
                os.rename(present, old)
            try:
                os.rename(temporary, present)
            except OSError:
                if os.path.lexists(old):
                    os.rename(old, present)
                raise
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_text(path: str, text: str) -> None:
    """Writes a text file in UTF-8. Errors are those of `replaced`."""
    with replaced(path) as file, _explained(path):
        file.write(text.encode(errors="backslashreplace"))


def _mode() -> int:
    """The mode of a new file."""
    return 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (MilepostError, BrokenPipeError):
        raise
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        raise StorageError(
            "cannot write this file",
            errno=number,
            file=path,
            found=error.strerror if isinstance(error, OSError) else str(error),
            remedy="pass a path in an existing directory that you may write to",
        ) from error
