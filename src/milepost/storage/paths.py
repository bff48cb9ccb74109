"""What may be given as a path, and which paths can be those of files of this machine."""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Final

from milepost.errors import CheckpointNotFoundError, UnsupportedError

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?:/|$)")
"""A scheme and one slash: `pathlib.Path` makes one of two. Only the scheme: the directory of ``gs://name`` is ``gs:``."""


class ImpossiblePathError(OSError):
    """No file can have this path, on any system."""


def check_possible(path: str) -> None:
    """Refuses what the operating system does not take for a path at all.

    Raises:
        ImpossiblePathError: There is a null character in it, or one that has no form in the system's encoding.
    """
    if "\0" in path:
        raise ImpossiblePathError(errno.EINVAL, "the path holds a null character")
    if not path.isascii():
        try:
            os.fsencode(path)
        except UnicodeEncodeError as error:
            raise ImpossiblePathError(errno.EINVAL, f"the path cannot be encoded: {error.reason}") from None


def check_local(path: str) -> None:
    """Refuses what the user means for another place than the one that the operating system would look at.

    Raises:
        UnsupportedError: It is a URL, or begins with ``~``, which only a shell expands.

    Example:
        >>> check_local("runs/ckpt-1")
        >>> check_local("gs://bucket/ckpt-1")
        Traceback (most recent call last):
        milepost.errors.UnsupportedError: a URL is not a path of this machine
          file: gs://bucket/ckpt-1
          expected: a path of a file system that is mounted here
          found: a URL of the scheme gs
          remedy: save to a local directory and copy it, mount the remote one, or pass a storage of your own as CheckpointOptions(storage=...); a directory that really has this name is ./gs:
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
        remedy = "leave file:// out"
    else:
        remedy = (
            "save to a local directory and copy it, mount the remote one, or pass a storage of your own as "
            f"CheckpointOptions(storage=...); a directory that really has this name is ./{url[1]}:"
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
        UnsupportedError: It is something else, or a tensor of a graph, whose value nobody knows yet.

    Example:
        >>> import numpy as np, pathlib
        >>> plain_path(pathlib.Path("run") / "ckpt"), plain_path(b"run/ckpt"), plain_path(np.array("run/ckpt"))
        ('run/ckpt', 'run/ckpt', 'run/ckpt')
    """
    if type(path) is str:
        return path
    found = path
    try:
        if not isinstance(found, (str, bytes, os.PathLike)):
            numpy = getattr(found, "numpy", None)
            found = numpy() if callable(numpy) else found
            found = found.item() if getattr(found, "shape", None) == () else found
        return str(os.fsdecode(found))
    except (TypeError, AttributeError, NotImplementedError):
        raise UnsupportedError(
            "this is no path",
            expected="text, bytes, an os.PathLike, or a scalar tensor of text whose value is known",
            found=f"{path!r:.80} of type {type(path).__name__}",
            remedy="pass str(path), or the tensor's value",
        ) from None


def missing_before_parent(place: str) -> str:
    """The first directory of a path that does not exist and is followed by ``..``, or nothing.

    Example:
        >>> missing_before_parent("no such directory/../file")
        'no such directory'
    """
    parts = place.split(os.sep)
    heads = (os.sep.join(parts[:number]) for number, part in enumerate(parts) if part == os.pardir)
    return next((head for head in heads if head and not os.path.exists(head)), "")


def check_link(place: str) -> None:
    """Makes sure that a name which is taken leads to something.

    Raises:
        CheckpointNotFoundError: It is that of a symbolic link to nothing.

    Example:
        >>> check_link("/")
    """
    if not os.path.exists(place):
        raise CheckpointNotFoundError(
            "cannot make a directory: a symbolic link of this name leads to nothing",
            file=place,
            remedy="make the directory that it leads to, or remove the link",
        )
