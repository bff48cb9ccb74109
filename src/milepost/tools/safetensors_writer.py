"""Writes safetensors files. `milepost.foreign.safetensors` describes the format.

Tensors of larger elements come first, so that each begins at a multiple of the size of its elements.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.memory import Array, bytes_of, swap_bytes
from milepost.foreign.safetensors import DTYPES, SUFFIX
from milepost.tensor import DType
from milepost.tools.exporting import Exported
from milepost.tools.output_file import replaced

_NAMES: Final = {name: dtype for dtype, name in DTYPES.items()}
_ALIGNMENT: Final = 8
_METADATA: Final = {"format": "pt"}
"""What the libraries of Hugging Face write, and some of them ask for."""


def accepts(dtype: DType) -> bool:
    """Whether the format has an element type."""
    return dtype.name in _NAMES


def files_for(path: str, tensors: Sequence[Exported], most: int | None) -> dict[str, list[Exported]]:
    """Divides tensors into files, as the libraries of Hugging Face name them.

    Args:
        path: The path of the file if there is one.
        tensors: The tensors.
        most: The most bytes of tensors in a file; a larger tensor has a file of its own. None for one file.
    """
    files: list[list[Exported]] = [[]]
    size = 0
    for tensor in tensors:
        if most is not None and files[-1] and size + tensor.spec.nbytes > most:
            files.append([])
            size = 0
        files[-1].append(tensor)
        size += tensor.spec.nbytes
    if len(files) == 1:
        return {path: files[0]}
    stem = path.removesuffix(SUFFIX)
    return {f"{stem}-{number:05}-of-{len(files):05}{SUFFIX}": inside for number, inside in enumerate(files, start=1)}


def index_of(path: str) -> str:
    """The path of the index of several files."""
    return f"{path}.index.json"


def write(path: str, files: dict[str, list[Exported]], reader: BundleReader) -> None:
    """Writes files, and their index last if there are several.

    Args:
        path: As for `files_for`.
        files: What it returned.
        reader: The open checkpoint.

    Raises:
        CorruptCheckpointError: Some bytes of the checkpoint are damaged.
        StorageError: A file cannot be written.
    """
    for name, tensors in files.items():
        with replaced(name) as file:
            _write_one(file, tensors, reader)
    if len(files) > 1:
        weights = {tensor.name: os.path.basename(name) for name, tensors in files.items() for tensor in tensors}
        total = sum(tensor.spec.nbytes for tensors in files.values() for tensor in tensors)
        with replaced(index_of(path)) as file:
            text = json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2, sort_keys=True)
            file.write(text.encode())


def _write_one(file: BinaryIO, tensors: Sequence[Exported], reader: BundleReader) -> None:
    ordered = sorted(tensors, key=lambda tensor: (-tensor.spec.dtype.itemsize, tensor.name))
    header: dict[str, Any] = {"__metadata__": _METADATA}
    end = 0
    for tensor in ordered:
        start, end = end, end + tensor.spec.nbytes
        name = _NAMES[tensor.spec.dtype.name]
        header[tensor.name] = {"dtype": name, "shape": list(tensor.spec.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in ordered:
        for chunk in tensor.chunks(reader):
            file.write(_little_endian(chunk, tensor.spec.dtype))


def _little_endian(chunk: Array, dtype: DType) -> Any:
    data = np.ascontiguousarray(chunk)
    if sys.byteorder == "big":
        data = data.copy()
        swap_bytes(bytes_of(data), dtype)
    return bytes_of(data)
