"""Writes ``.weights.h5`` files of Keras 3 by means of h5py. `milepost.foreign.keras_files` describes the format.

h5py makes the groups and says where the elements of each variable belong; they are written there after it has closed the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.coding.utf8 import utf8
from milepost.conversion.chunks import little_endian
from milepost.conversion.output_file import replaced
from milepost.conversion.plan import Exported
from milepost.conversion.writer import NOT_UTF8, Writer
from milepost.foreign.hdf5 import import_h5py
from milepost.tensor import DType

_VARIABLES: Final = "vars"
_BFLOAT16: Final = "bfloat16"
_REMEDY: Final = (
    "name the program's model: milepost convert ... --object MODULE:OBJECT; or restore the checkpoint into the model, and call "
    "model.save_weights() of Keras; or give values such names by rename"
)


def _accepts(dtype: DType) -> bool:
    return dtype.name == _BFLOAT16 or (
        dtype.number > 0 and not dtype.is_bytes and dtype.numpy.isbuiltin == 1 and dtype.numpy.kind in "biufc"
    )


def _problem(tensor: Exported) -> str | None:
    levels = tensor.name.split("/")
    if len(levels) < 2 or levels[-2] != _VARIABLES:
        return "Keras finds variables by paths such as layers/dense/vars/0"
    if not all(levels) or "." in levels or ".." in levels or "\0" in tensor.name:
        return "the format cannot hold this name"
    return NOT_UTF8 if utf8(tensor.name) is None else None


def _paths(target: str, tensors: Sequence[Exported], most: int | None) -> list[str]:
    return [target]


def _write(target: str, tensors: Sequence[Exported], most: int | None, reader: BundleReader) -> list[str]:
    h5py = import_h5py(target)
    with replaced(target) as file:
        places = _write_structure(h5py, file, tensors)
        for tensor, place in zip(tensors, places, strict=True):
            if place is not None:
                file.seek(place)
                for chunk in tensor.chunks(reader):
                    file.write(little_endian(chunk, tensor.spec.dtype))
    return [target]


def _write_structure(h5py: Any, file: BinaryIO, tensors: Sequence[Exported]) -> list[int | None]:
    """Writes everything but the elements. Returns where those of each tensor belong, or None if it has none."""
    places: list[int | None] = []
    plain = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plain.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plain.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(file, "w") as made:
        for tensor in tensors:
            path, _, name = tensor.name.rpartition("/")
            dtype = tensor.spec.dtype
            is_bfloat16 = dtype.name == _BFLOAT16
            kind = np.dtype("V2") if is_bfloat16 else dtype.numpy.newbyteorder("<")
            space = h5py.h5s.create_simple(tensor.spec.shape) if tensor.spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
            group = made.require_group(path)
            created = h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(kind, logical=True), space, plain)
            if is_bfloat16:
                h5py.Dataset(created).attrs["dtype"] = _BFLOAT16
            places.append(created.get_offset() if tensor.spec.nbytes else None)
    return places


WRITER: Final = Writer("keras", _accepts, _paths, _write, _problem, nests=True, remedy=_REMEDY)
"""The format."""
