"""Paths: which objects are accepted as paths, which paths a file of this machine can have, and how paths are written.

Paths are joined and taken apart by ``os.path``: with ``/``, and on Windows with ``\\``, where both are understood and a path
may begin with a drive. In files that other systems read, such as the state file, they are written with ``/``.
"""

from __future__ import annotations

import errno
import ntpath
import os
import re
from typing import Any, Final

from milepost.errors import CheckpointNotFoundError, StorageError, UnsupportedError

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?:/|$)")
"""A scheme and one slash, because `pathlib.Path` makes one of two. Or only a scheme: ``gs:`` is the directory of ``gs://name``."""
SCHEMES: Final = ("memory", "s3")
"""The schemes of URLs to which milepost saves, besides ``file``."""
_FILE_URL: Final = re.compile(r"file:/(?://|/localhost/)?")

ORDINARY: Final = re.compile(r"(?!~)[\x01-9;-\x7f]*")
"""A path that `check_local` and `check_possible` always accept on POSIX systems."""

_DEVICES: Final = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [port + digit for port in ("com", "lpt") for digit in "123456789\u00b9\u00b2\u00b3"]
)
"""Names that mean a device on Windows, whatever the directory and the ending. Source: Microsoft, "Naming Files, Paths, and Namespaces"."""
_NOT_IN_WINDOWS: Final = re.compile(r'[<>:"|?*\x00-\x1f]')


class ImpossiblePathError(OSError):
    """No file can have this path on this system."""

    def as_storage_error(self, doing: str, path: str) -> StorageError:
        """The error that a storage raises for it.

        Args:
            doing: What cannot be done, after "cannot".
            path: The path as the caller of the storage gave it.
        """
        return StorageError(
            f"cannot {doing}: {self.strerror}", errno=self.errno, file=path, remedy="use a path that a file can have"
        )


def check_possible(path: str) -> None:
    """Raises an error for a path that no file can have.

    Raises:
        ImpossiblePathError: The path has a null character, a character without a form in the encoding of the system or, on
            Windows, a name that Windows does not allow.
    """
    if "\0" in path:
        raise ImpossiblePathError(errno.EINVAL, "the path holds a null character")
    if not path.isascii():
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise ImpossiblePathError(errno.EINVAL, f"the path cannot be encoded: {error.reason}") from None
    if os.name == "nt":
        check_possible_on_windows(path)


def check_possible_on_windows(path: str) -> None:
    """Raises an error for names that Windows does not allow, or to which it gives another meaning.

    Windows takes ``run:ckpt`` for a hidden part of the file ``run``, ``nul.index`` for a device, and ``run.`` for ``run``,
    so that a checkpoint would be lost without an error.

    Raises:
        ImpossiblePathError: The path has such a name in it.

    Example:
        >>> check_possible_on_windows("C:\\\\runs/ckpt-1")
        >>> check_possible_on_windows("runs/12:30/ckpt-1")
        Traceback (most recent call last):
        milepost.storage.paths.ImpossiblePathError: [Errno 22] Windows does not allow ':' in a name, as in '12:30'
    """
    for name in re.split(r"[\\/]", ntpath.splitdrive(path)[1]):
        if wrong := _NOT_IN_WINDOWS.search(name):
            raise ImpossiblePathError(errno.EINVAL, f"Windows does not allow {wrong[0]!r} in a name, as in {name!r}")
        if name not in ("", ".", "..") and name[-1] in ". ":
            raise ImpossiblePathError(errno.EINVAL, f"Windows drops the end of a name that ends like {name!r}")
        if name.partition(".")[0].rstrip(" ").lower() in _DEVICES:
            raise ImpossiblePathError(errno.EINVAL, f"Windows takes {name!r} for a device")


def has_directory(path: str) -> bool:
    """Whether a path is more than a name.

    Example:
        >>> has_directory("run/ckpt-1"), has_directory("ckpt-1")
        (True, False)
    """
    return os.sep in path or (os.altsep is not None and os.altsep in path)


def with_slashes(path: str) -> str:
    """A path with ``/``, as it is written in files that other systems read too."""
    return path if os.sep == "/" else path.replace(os.sep, "/")


def with_own_separators(path: str) -> str:
    """A path from a file that another system may have written, with this system's separators."""
    return path if os.sep == "/" else path.replace("/", os.sep)


def relative_path(path: str, directory: str) -> str:
    """A path relative to a directory. The path itself if that is impossible, as between two drives of Windows.

    Example:
        >>> relative_path("run/ckpt-1", "run")
        'ckpt-1'
    """
    try:
        return os.path.relpath(path, directory or ".")
    except ValueError:
        return path


def is_url(path: str) -> bool:
    """Whether a path is a URL.

    Example:
        >>> is_url("s3://bucket/run"), is_url("run/ckpt-1")
        (True, False)
    """
    return _URL.match(path) is not None


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme, bucket and key of the URL of an object or a folder. The last two are empty if the URL lacks them.

    Example:
        >>> split_url("s3://bucket/run/ckpt-1")
        ('s3', 'bucket', 'run/ckpt-1')
    """
    scheme, _, rest = url.partition(":")
    name, _, inside = rest.lstrip("/").partition("/")
    return scheme.lower(), name, inside.strip("/")


def without_file_scheme(path: str) -> str:
    """The path of this machine that a URL of the scheme ``file`` means. Any other path is returned as it is.

    Example:
        >>> without_file_scheme("file:///run/ckpt-1"), without_file_scheme("run")
        ('/run/ckpt-1', 'run')
    """
    inside = _FILE_URL.match(path)
    return path if inside is None else "/" + path[inside.end() :]


def check_local(path: str) -> None:
    """Raises an error for a path that the operating system would read differently from what the user means.

    Raises:
        UnsupportedError: The path is a URL, or begins with ``~``, which only a shell expands.

    Example:
        >>> check_local("runs/ckpt-1")
        >>> check_local("gs://bucket/ckpt-1")
        Traceback (most recent call last):
        milepost.errors.UnsupportedError: a URL is not a path of this machine
          file: gs://bucket/ckpt-1
          expected: a path of a file system that is mounted here
          found: a URL of the scheme gs
          remedy: save to a local directory and copy it, or mount the remote one; docs/object_stores.md says to which stores milepost saves; a directory that really has this name is ./gs:
    """
    if path.startswith("~"):
        raise UnsupportedError(
            "the path begins with ~, which only a shell expands",
            file=path,
            expected="a path that is relative or begins with /",
            remedy="expand it with os.path.expanduser(); a directory that really has this name is ./~",
        )
    url = _URL.match(path)
    if url is None:
        return
    if url[1] == "file":
        remedy = "pass the path without file://"
    else:
        remedy = (
            "save to a local directory and copy it, or mount the remote one; docs/object_stores.md says to which stores milepost "
            f"saves; a directory that really has this name is ./{url[1]}:"
        )
    raise UnsupportedError(
        "a URL is not a path of this machine",
        file=path,
        expected="a path of a file system that is mounted here",
        found=f"a URL of the scheme {url[1]}",
        remedy=remedy,
    )


def plain_path(path: Any) -> str:
    """A path as text.

    Args:
        path: Text, bytes, an ``os.PathLike``, or a scalar array, variable or tensor of text whose value is known.

    Raises:
        UnsupportedError: The object is something else, or a tensor of a graph, which has no value yet.

    Example:
        >>> import numpy as np, pathlib
        >>> plain_path(pathlib.Path("run") / "ckpt"), plain_path(b"run/ckpt"), plain_path(np.array("run/ckpt"))
        ('run/ckpt', 'run/ckpt', 'run/ckpt')
    """
    if type(path) is str:
        return path
    value = path
    try:
        if not isinstance(value, (str, bytes, os.PathLike)):
            numpy = getattr(value, "numpy", None)
            value = numpy() if callable(numpy) else value
            value = value.item() if getattr(value, "shape", None) == () else value
        return str(os.fsdecode(value))
    except (TypeError, AttributeError, NotImplementedError):
        raise UnsupportedError(
            "this is not a path",
            expected="text, bytes, an os.PathLike, or a scalar tensor of text whose value is known",
            found="None" if path is None else f"{path!r:.80} of type {type(path).__name__}",
            remedy="pass the path of a file or directory; milepost.latest_checkpoint() returns None if it finds no checkpoint"
            if path is None
            else "pass the directory or prefix as text; instead of a tensor, pass its value",
        ) from None


def check_order(path: Any, other: Any, order: str) -> None:
    """Refuses a path and another argument that were exchanged.

    Args:
        path: The argument that is to be a path.
        other: The argument that is not.
        order: The call as it should be.

    Raises:
        UnsupportedError: ``other`` is a path, and ``path`` is not.

    Example:
        >>> check_order({"step": 7}, "run/state", "milepost.save(path, tree)")
        Traceback (most recent call last):
        milepost.errors.UnsupportedError: two arguments are exchanged
          expected: milepost.save(path, tree)
          found: an object of type dict in the place of the path 'run/state'
          remedy: exchange the two arguments
    """
    kinds = (str, bytes, os.PathLike)
    if isinstance(other, kinds) and not isinstance(path, kinds) and getattr(path, "shape", None) != ():
        raise UnsupportedError(
            "two arguments are exchanged",
            expected=order,
            found=f"an object of type {type(path).__name__} in the place of the path {os.fsdecode(other)!r:.80}",
            remedy="exchange the two arguments",
        )


def check_not_empty(path: str) -> None:
    """Refuses an empty path of a checkpoint to read, which a message could not show.

    Raises:
        CheckpointNotFoundError: The path is empty.

    Example:
        >>> check_not_empty("run/ckpt-1")
        >>> check_not_empty("")
        Traceback (most recent call last):
        milepost.errors.CheckpointNotFoundError: the path of the checkpoint is empty
          expected: the path that save() or write() returned
          found: ''
          remedy: pass the path of a checkpoint; milepost.latest_checkpoint(directory) finds the newest one, or None, with which restore() restores nothing
    """
    if not path:
        raise CheckpointNotFoundError(
            "the path of the checkpoint is empty",
            expected="the path that save() or write() returned",
            found="''",
            remedy="pass the path of a checkpoint; milepost.latest_checkpoint(directory) finds the newest one, or None, with which "
            "restore() restores nothing",
        )


def check_has_file_name(name: str, path: str) -> None:
    """Refuses a prefix without a file name, since its files would be hidden files such as ``.index`` or ``-1.index``.

    Args:
        name: The argument.
        path: The path of the files of a checkpoint.

    Raises:
        UnsupportedError: The path is empty, ends with a separator, or its last part is ``.`` or ``..``.

    Example:
        >>> check_has_file_name("path", "run/ckpt")
        >>> check_has_file_name("path", "run/")
        Traceback (most recent call last):
        milepost.errors.UnsupportedError: the prefix has no file name
          key: path
          expected: a name for the files, with or without the path of a directory before it
          found: 'run/'
          remedy: pass 'run/ckpt'
    """
    if os.path.basename(path) in ("", os.curdir, os.pardir):
        raise UnsupportedError(
            "the prefix has no file name",
            key=name,
            expected="a name for the files, with or without the path of a directory before it",
            found=repr(path),
            remedy=f"pass {os.path.join(path, 'ckpt')!r}",
        )


def missing_before_parent(place: str) -> str:
    """The first directory of a path that does not exist and is followed by ``..``. Empty if there is none.

    Example:
        >>> missing_before_parent("no such directory/../file")
        'no such directory'
    """
    parts = with_own_separators(place).split(os.sep)
    heads = (os.sep.join(parts[:number]) for number, part in enumerate(parts) if part == os.pardir)
    return next((head for head in heads if head and not os.path.exists(head)), "")


def check_link(place: str) -> None:
    """Checks that an existing name is not a symbolic link to a path that does not exist.

    Raises:
        CheckpointNotFoundError: It is such a link.

    Example:
        >>> check_link("/")
    """
    if not os.path.exists(place):
        raise CheckpointNotFoundError(
            "cannot make a directory: a symbolic link of this name leads to a path that does not exist",
            file=place,
            remedy="make the directory that it leads to, or remove the link",
        )
