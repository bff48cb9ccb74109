"""The formats that can be written, and which one a path means."""

from __future__ import annotations

import difflib
import os
import re
from typing import Final

from milepost.conversion import (
    keras_writer,
    npz_writer,
    orbax_writer,
    safetensors_writer,
    tensorflow_writer,
    torch_writer,
)
from milepost.conversion.writer import Writer
from milepost.errors import UnsupportedError

KERAS: Final = keras_writer.WRITER.name
"""Files whose names a live model can give."""
TENSORFLOW_1: Final = tensorflow_writer.WRITER.name
"""Checkpoints by names."""
CHECKPOINT: Final = "checkpoint"
"""A checkpoint of milepost, which keeps the structure of the tree."""
WRITERS: Final[dict[str, Writer]] = {
    module.WRITER.name: module.WRITER
    for module in (safetensors_writer, torch_writer, npz_writer, keras_writer, orbax_writer, tensorflow_writer)
}
FORMATS: Final = (*WRITERS, CHECKPOINT)
"""The names of all formats."""
_ENDINGS: Final = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".npz": "npz",
    ".weights.h5": "keras",
    keras_writer.INDEX: "keras",
}
_LIKE_AN_ENDING: Final = re.compile(r"(?<=.)\.(?!ckpt(-[0-9]+)?$)[A-Za-z][A-Za-z0-9_]*$")
"""A name with an ending is hardly meant as the prefix of a checkpoint. TensorFlow's usual prefixes end in ``.ckpt``, with a number or without."""


def format_of(path: str) -> str:
    """The format that the ending of a path means. The prefix of a checkpoint has none.

    Raises:
        UnsupportedError: The path has an ending that means no format.

    Example:
        >>> format_of("model.safetensors"), format_of("model.weights.h5"), format_of("run/ckpt"), format_of("run/model.ckpt-7")
        ('safetensors', 'keras', 'checkpoint', 'checkpoint')
    """
    format_name = next((name for ending, name in _ENDINGS.items() if path.endswith(ending)), None)
    ending = _LIKE_AN_ENDING.search(os.path.basename(path))
    if format_name is None and ending is not None:
        known = ", ".join(_ENDINGS)
        near = difflib.get_close_matches(ending[0], _ENDINGS, 1)
        meant = f"if {near[0]} is meant, correct the ending; " if near else ""
        raise UnsupportedError(
            f"the ending {ending[0]} of this path means no format that can be written",
            file=path,
            expected=f"one of {known}; or a path without an ending, for a checkpoint of milepost",
            remedy=f"{meant}pass format='{CHECKPOINT}' if this is the prefix of a checkpoint, or another format; those are {', '.join(FORMATS)}",
        )
    return format_name or CHECKPOINT
