"""Writes directories of Orbax, without Orbax: one item, a tree of arrays, in the form that `PyTreeCheckpointer` writes without OCDBT.

::

    <item>/_METADATA                  in JSON, by the path of each array its keys, and how arrays are stored
    <item>/<a.b>/.zarray              in JSON, element type and shape of the array at the path a, b: Zarr, version 2
    <item>/<a.b>/<0.0>                its elements in one chunk, row-major and little-endian, not compressed
    <item>/_CHECKPOINT_METADATA       in JSON, when it was written

Levels of names are keys of dicts; Orbax has no arrays without elements. Source: Orbax 0.12, observed; the Zarr specification, version 2.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.coding.utf8 import utf8
from milepost.conversion.chunks import little_endian
from milepost.conversion.plan import Exported
from milepost.conversion.writer import NOT_UTF8, Writer
from milepost.foreign import is_item_of_orbax
from milepost.foreign.jax.orbax_layout import STEP, TREE
from milepost.storage.default import DEFAULT_STORAGE
from milepost.storage.output_file import replaced_directory
from milepost.tensor import DType

_DICT_KEY: Final = 2
"""Orbax' number of keys of dicts."""
_LONGEST: Final = 255
"""Bytes of the name of a directory."""
_TAKEN: Final = frozenset(
    {TREE, STEP, "_sharding", "array_metadatas", "checkpoint", "d", "descriptor", "manifest.ocdbt"}
)
"""Names of files of Orbax' own."""
_BY_NAME: Final = frozenset(
    {
        *("bfloat16", "int2", "int4", "float4_e2m1fn"),
        *("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz"),
    }
)
"""Element types that TensorStore's Zarr calls by their names; NumPy's own have codes."""


def _accepts(dtype: DType) -> bool:
    return not dtype.is_bytes and (
        dtype.name in _BY_NAME or (dtype.number > 0 and dtype.numpy.isbuiltin == 1 and dtype.numpy.kind in "biufc")
    )


def _problem(tensor: Exported) -> str | None:
    levels = tensor.name.split("/")
    directory = ".".join(levels)
    if not all(levels) or directory.strip(".") == "" or "\0" in directory or "\\" in directory:
        return "the format cannot hold this name: every level of it is part of the name of a directory"
    if directory in _TAKEN:
        return "the format has a file of its own of this name"
    encoded = utf8(directory)
    if encoded is None:
        return NOT_UTF8
    if len(encoded) > _LONGEST:
        return f"the format has names of at most {_LONGEST} bytes"
    return None if tensor.spec.nbytes else "the format has no arrays without elements"


def _paths(target: str, tensors: Sequence[Exported], most: int | None) -> list[str]:
    return [os.path.normpath(target)]


def _write(target: str, tensors: Sequence[Exported], most: int | None, reader: BundleReader) -> list[str]:
    began = time.time_ns()
    target = os.path.normpath(target)
    with replaced_directory(target, lambda path: is_item_of_orbax(DEFAULT_STORAGE, path)) as directory:
        for tensor in tensors:
            inside = os.path.join(directory, tensor.name.replace("/", "."))
            os.mkdir(inside)
            _write_json(os.path.join(inside, ".zarray"), _described(tensor))
            with open(os.path.join(inside, ".".join("0" * max(len(tensor.spec.shape), 1))), "xb") as file:
                for chunk in tensor.chunks(reader):
                    file.write(little_endian(chunk, tensor.spec.dtype))
        _write_json(os.path.join(directory, TREE), _tree(tensors))
        times = {"init_timestamp_nsecs": began, "commit_timestamp_nsecs": time.time_ns()}
        _write_json(
            os.path.join(directory, STEP),
            {"item_handlers": None, "metrics": {}, "performance_metrics": {}, **times, "custom_metadata": {}},
        )
    return [target]


def _described(tensor: Exported) -> dict[str, Any]:
    dtype, shape = tensor.spec.dtype, list(tensor.spec.shape)
    return {
        "chunks": shape,
        "compressor": None,
        "dimension_separator": ".",
        "dtype": dtype.name if dtype.name in _BY_NAME else dtype.numpy.newbyteorder("<").str,
        "fill_value": None,
        "filters": None,
        "order": "C",
        "shape": shape,
        "zarr_format": 2,
    }


def _tree(tensors: Sequence[Exported]) -> dict[str, Any]:
    return {
        "tree_metadata": {
            str(tuple(levels)): {
                "key_metadata": [{"key": level, "key_type": _DICT_KEY} for level in levels],
                "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False},
            }
            for levels in (tensor.name.split("/") for tensor in tensors)
        },
        "use_ocdbt": False,
        "use_zarr3": False,
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": None,
    }


def _write_json(path: str, value: Any) -> None:
    with open(path, "x", encoding="utf-8") as file:
        json.dump(value, file)


WRITER: Final = Writer("orbax", _accepts, _paths, _write, _problem, nests=True)
"""The format."""
