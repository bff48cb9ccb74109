"""Writes ``.npz`` files: zip archives of ``.npy`` files, not compressed, as ``numpy.savez`` writes them."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Final

from milepost.bundle import BundleReader
from milepost.coding.utf8 import utf8
from milepost.conversion import npy
from milepost.conversion.plan import Exported
from milepost.conversion.writer import NOT_UTF8, Writer
from milepost.storage.output_file import replaced

_ALWAYS_THE_SAME: Final = (1980, 1, 1, 0, 0, 0)
_LONGEST: Final = 0xFFFF - len(".npy")


def _problem(tensor: Exported) -> str | None:
    name = utf8(tensor.name)
    if name is None:
        return NOT_UTF8
    if b"\0" in name or len(name) > _LONGEST:
        return f"the format has names of at most {_LONGEST} bytes, without NUL"
    return None


def _paths(target: str, tensors: Sequence[Exported], most: int | None) -> list[str]:
    return [target]


def _write(target: str, tensors: Sequence[Exported], most: int | None, reader: BundleReader) -> list[str]:
    with replaced(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for tensor in tensors:
            member = zipfile.ZipInfo(f"{tensor.name}.npy", _ALWAYS_THE_SAME)
            with archive.open(member, "w", force_zip64=True) as part:
                npy.write(part, tensor.spec.dtype.numpy, tensor.spec.shape, tensor.chunks(reader))
    return [target]


WRITER: Final = Writer("npz", npy.has_type, _paths, _write, _problem)
"""The format."""
