"""What may be given as a path."""

from __future__ import annotations

import os
from typing import Any

from milepost.errors import UnsupportedError


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
