"""The formats that can be written, and which one a path means."""

from __future__ import annotations

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
    ".h5": "keras",
}


def format_of(path: str) -> str:
    """The format that the ending of a path means.

    Example:
        >>> format_of("model.safetensors"), format_of("model.weights.h5"), format_of("run/ckpt")
        ('safetensors', 'keras', 'checkpoint')
    """
    return next((name for ending, name in _ENDINGS.items() if path.endswith(ending)), CHECKPOINT)
