"""Writes ``.npz`` files: zip archives of ``.npy`` files, not compressed, as ``numpy.savez`` writes them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Final

from milepost.bundle import BundleReader
from milepost.tensor import DType
from milepost.tools import npy
from milepost.tools.exporting import Exported
from milepost.tools.output_file import replaced

_ALWAYS_THE_SAME: Final = (1980, 1, 1, 0, 0, 0)


def accepts(dtype: DType) -> bool:
    """Whether ``.npy`` has an element type."""
    return npy.has_type(dtype)


def write(path: str, tensors: Sequence[Exported], reader: BundleReader) -> None:
    """Writes a file. Arguments and errors are those of `milepost.tools.safetensors_writer.write`."""
    with replaced(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for tensor in tensors:
            member = zipfile.ZipInfo(f"{tensor.name}.npy", _ALWAYS_THE_SAME)
            with archive.open(member, "w", force_zip64=True) as part:
                npy.write(part, tensor.spec.dtype.numpy, tensor.spec.shape, tensor.chunks(reader))
