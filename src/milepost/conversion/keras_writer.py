"""Writes ``.weights.h5`` files of Keras 3 by means of h5py, one or several with their index. `milepost.foreign.keras.files` describes the formats.

::

    model.weights.json  ->  model_00000.weights.h5  model_00001.weights.h5 ...  model.weights.json

h5py makes the groups and says where the elements of each variable belong; they are written there after it has closed the file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.coding.utf8 import utf8
from milepost.conversion.chunks import little_endian
from milepost.conversion.divided import parts_of
from milepost.conversion.plan import Exported
from milepost.conversion.writer import NOT_UTF8, Writer
from milepost.errors import UnsupportedError
from milepost.foreign.hdf5.files import import_h5py
from milepost.storage.output_file import replaced
from milepost.tensor import DType

INDEX: Final = ".weights.json"
"""The ending of the index of several files."""
_ENDING: Final = ".weights.h5"
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
    if target.endswith(INDEX):
        return [*(_part(target, number) for number in range(len(parts_of(tensors, most)))), target]
    if most is not None:
        raise UnsupportedError(
            "Keras finds weights in several files by their index; nothing was written",
            file=target,
            expected=f"the name of an index, which ends in {INDEX}",
            found="the name of one file, and max_shard_size",
            remedy=f"write FILE{INDEX}, or leave max_shard_size out",
        )
    return [target]


def _part(index: str, number: int) -> str:
    return f"{index.removesuffix(INDEX)}_{number:05}{_ENDING}"


def _present(target: str) -> list[str]:
    if not target.endswith(INDEX):
        return [target] if os.path.isfile(target) else []
    directory, name = os.path.split(target.removesuffix(INDEX))
    part = re.compile(rf"{re.escape(name)}_\d{{5,}}{re.escape(_ENDING)}")
    listed = sorted(os.listdir(directory or os.curdir)) if os.path.isdir(directory or os.curdir) else []
    part_files = [os.path.join(directory, each) for each in listed if part.fullmatch(each)]
    return [*([target] if os.path.isfile(target) else []), *part_files]


def _write(target: str, tensors: Sequence[Exported], most: int | None, reader: BundleReader) -> list[str]:
    h5py = import_h5py(target)
    if not target.endswith(INDEX):
        _write_one(h5py, target, tensors, reader)
        return [target]
    written = []
    names_by_path: dict[str, list[str]] = {}
    for number, part in enumerate(parts_of(tensors, most)):
        written.append(_part(target, number))
        _write_one(h5py, written[-1], part, reader)
        for path in dict.fromkeys(tensor.name.rpartition("/")[0] for tensor in part):
            names_by_path.setdefault(f"/{path}", []).append(os.path.basename(written[-1]))
    index = {
        "metadata": {"total_size": sum(tensor.spec.nbytes for tensor in tensors)},
        "weight_map": {path: names[0] if len(names) == 1 else names for path, names in names_by_path.items()},
    }
    with replaced(target) as file:
        file.write(json.dumps(index, indent=4).encode())
    return [*written, target]


def _write_one(h5py: Any, target: str, tensors: Sequence[Exported], reader: BundleReader) -> None:
    with replaced(target) as file:
        offsets = _write_structure(h5py, file, tensors)
        for tensor, offset in zip(tensors, offsets, strict=True):
            if offset is not None:
                file.seek(offset)
                for chunk in tensor.chunks(reader):
                    file.write(little_endian(chunk, tensor.spec.dtype))


def _write_structure(h5py: Any, file: BinaryIO, tensors: Sequence[Exported]) -> list[int | None]:
    """Writes everything but the elements. Returns where those of each tensor belong, or None if it has none."""
    offsets: list[int | None] = []
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
            offsets.append(created.get_offset() if tensor.spec.nbytes else None)
    return offsets


WRITER: Final = Writer(
    "keras", _accepts, _paths, _write, _problem, nests=True, divides=True, present=_present, remedy=_REMEDY
)
"""The format."""
