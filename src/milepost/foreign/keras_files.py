"""Files of Keras' own saving, which milepost does not read: ``.keras``, ``.weights.h5`` and ``.h5``.

Source: Keras 3.15, ``keras/src/saving/saving_lib.py``; HDF5 File Format Specification 3.0, section II.A.
"""

from __future__ import annotations

from typing import Final

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign.zip_directory import read_directory
from milepost.storage import ReadableFile

_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_ZIP: Final = b"PK\x03\x04"
_MODEL: Final = "config.json"
_WEIGHTS: Final = "model.weights."


def refuse(file: ReadableFile, path: str) -> None:
    """Refuses a file that Keras wrote.

    Raises:
        UnsupportedError: It is one.
    """
    if _begins_with(file, _HDF5):
        raise UnsupportedError(
            "this is an HDF5 file, which Keras' save_weights() and save() write and milepost does not read",
            file=path,
            expected="a checkpoint",
            found="HDF5",
            remedy="build the model, call model.load_weights(path) of Keras, and save it with milepost",
        )
    if _begins_with(file, _ZIP) and _is_model(file):
        raise UnsupportedError(
            "this is a model that Keras' save() wrote, which milepost does not read",
            file=path,
            expected="a checkpoint",
            found="a .keras archive",
            remedy="load it with keras.models.load_model(path), and save the model with milepost",
        )


def _begins_with(file: ReadableFile, magic: bytes) -> bool:
    return file.size > len(magic) and bytes(file.read(0, len(magic))) == magic


def _is_model(file: ReadableFile) -> bool:
    try:
        names = read_directory(file)
    except CorruptCheckpointError:
        return False
    return _MODEL in names and any(name.startswith(_WEIGHTS) for name in names)
