"""Writes safetensors files. `milepost.foreign.safetensors` describes the format.

Tensors of larger elements come first, so that each begins at a multiple of the size of its elements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Final

from milepost.bundle import BundleReader
from milepost.coding.utf8 import utf8
from milepost.conversion import divided
from milepost.conversion.chunks import little_endian
from milepost.conversion.plan import Exported
from milepost.conversion.writer import NOT_UTF8, Writer
from milepost.errors import UnsupportedError
from milepost.foreign.safetensors import DTYPES, LONGEST, PAIRS
from milepost.foreign.safetensors import METADATA as METADATA_NAME
from milepost.tensor import DType

_NAMES: Final = {name: dtype for dtype, name in (DTYPES | PAIRS).items()}
_ALIGNMENT: Final = 8
_METADATA: Final = {"format": "pt"}
"""What the libraries of Hugging Face write, and some of them ask for. The source's own metadata, and what the user gives, come in addition."""


def _accepts(dtype: DType) -> bool:
    return dtype.name in _NAMES


def _problem(tensor: Exported) -> str | None:
    if tensor.name == METADATA_NAME:
        return "the format uses this name for metadata"
    if not tensor.spec.shape and tensor.spec.dtype.name in PAIRS.values():
        return "the format counts elements of half a byte, and has no pair of them without a dimension"
    return NOT_UTF8 if utf8(tensor.name) is None else None


def _write(
    target: str,
    tensors: Sequence[Exported],
    most: int | None,
    reader: BundleReader,
    metadata: Mapping[str, str] | None = None,
) -> list[str]:
    known = reader.origin.metadata
    kept = {name: value for name, value in (known or {}).items() if isinstance(value, str)}
    write_one = partial(_write_one, metadata=_METADATA | kept | dict(metadata or {}))
    return divided.write(target, tensors, most, reader, write_one)


def _write_one(file: BinaryIO, tensors: Sequence[Exported], reader: BundleReader, metadata: Mapping[str, str]) -> None:
    ordered = sorted(tensors, key=lambda tensor: (-tensor.spec.dtype.itemsize, tensor.name))
    header: dict[str, Any] = {METADATA_NAME: metadata}
    end = 0
    for tensor in ordered:
        start, end = end, end + tensor.spec.nbytes
        name, shape = _NAMES[tensor.spec.dtype.name], list(tensor.spec.shape)
        if name in PAIRS:
            shape[-1] *= 2
        header[tensor.name] = {"dtype": name, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > LONGEST:
        raise UnsupportedError(
            "the names and shapes of these tensors take more bytes than a safetensors file may have for them",
            expected=f"{LONGEST} bytes or less",
            found=len(text),
            remedy="divide the model into several files, by max_shard_size",
        )
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in ordered:
        for chunk in tensor.chunks(reader):
            file.write(little_endian(chunk, tensor.spec.dtype))


WRITER: Final = Writer(
    "safetensors",
    _accepts,
    divided.paths,
    _write,
    _problem,
    divides=True,
    describes=True,
    present=divided.present,
)
"""The format."""
