"""Models in several files, with an index, as the libraries of Hugging Face write them.

::

    model.safetensors  ->  model-00001-of-00003.safetensors ...  model.safetensors.index.json
    pytorch_model.bin  ->  pytorch_model-00001-of-00003.bin ...  pytorch_model.bin.index.json

`milepost.foreign.shards` reads the index.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import BinaryIO

from milepost.bundle import BundleReader
from milepost.conversion.plan import Exported
from milepost.errors import MilepostError
from milepost.storage.output_file import replaced

WriteOne = Callable[[BinaryIO, Sequence[Exported], BundleReader], None]
"""Writes one file."""


def parts_of(tensors: Sequence[Exported], most: int | None) -> list[list[Exported]]:
    """Divides tensors into files.

    Args:
        tensors: The tensors.
        most: The most bytes of tensors in a file; a larger tensor has a file of its own. None for one file.
    """
    parts: list[list[Exported]] = [[]]
    size = 0
    for tensor in tensors:
        if most is not None and parts[-1] and size + tensor.spec.nbytes > most:
            parts.append([])
            size = 0
        parts[-1].append(tensor)
        size += tensor.spec.nbytes
    return parts


def paths(target: str, tensors: Sequence[Exported], most: int | None) -> list[str]:
    """The files that `write` writes; see `milepost.conversion.writer.Writer`."""
    names = _names(target, len(parts_of(tensors, most)))
    return [*names, _index_of(target)] if len(names) > 1 else names


def present(target: str) -> list[str]:
    """The files that are there of a model of this target, in one file or in any number of them; see `milepost.conversion.writer.Writer`."""
    directory, name = os.path.split(target)
    stem, ending = os.path.splitext(name)
    part = re.compile(rf"{re.escape(stem)}-\d{{5,}}-of-\d{{5,}}{re.escape(ending)}")
    files = [each for each in (_index_of(target), target) if os.path.isfile(each)]
    if os.path.isdir(directory or os.curdir):
        files += [
            os.path.join(directory, each) for each in sorted(os.listdir(directory or os.curdir)) if part.fullmatch(each)
        ]
    return files


def write(
    target: str, tensors: Sequence[Exported], most: int | None, reader: BundleReader, write_one: WriteOne
) -> list[str]:
    """Writes files, and their index last if there are several.

    Args:
        target: The path of the file if there is one.
        tensors: The tensors.
        most: As for `parts_of`.
        reader: The open checkpoint.
        write_one: Writes one file.

    Raises:
        CorruptCheckpointError: Some bytes of the checkpoint are damaged.
        StorageError: A file cannot be written.
    """
    parts = parts_of(tensors, most)
    names = _names(target, len(parts))
    for name, part in zip(names, parts, strict=True):
        with replaced(name) as file:
            try:
                write_one(file, part, reader)
            except MilepostError as error:
                raise error.with_context(file=name) from None
    if len(names) == 1:
        return names
    weights = {tensor.name: os.path.basename(name) for name, part in zip(names, parts, strict=True) for tensor in part}
    total = sum(tensor.spec.nbytes for tensor in tensors)
    with replaced(_index_of(target)) as file:
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": weights}, indent=2, sort_keys=True)
        file.write(text.encode())
    return [*names, _index_of(target)]


def _names(target: str, count: int) -> list[str]:
    if count == 1:
        return [target]
    stem, ending = os.path.splitext(target)
    return [f"{stem}-{number:05}-of-{count:05}{ending}" for number in range(1, count + 1)]


def _index_of(target: str) -> str:
    return f"{target}.index.json"
