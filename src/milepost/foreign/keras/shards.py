"""Reads weights of Keras 3 in several files, by the index that ``save_weights(..., max_shard_size=)`` writes.

`files` has the grammar of the index, whose name ends in ``.weights.json``. The variables of one object may be in several files.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from milepost.bundle.format.slices import Box
from milepost.bundle.memory import Array
from milepost.coding.json_data import LONGEST, parse_object
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError
from milepost.foreign.keras.files import KerasFile
from milepost.foreign.shards import is_name_of_file
from milepost.foreign.stored import Stored
from milepost.storage import ReadableFile


class KerasShards(KerasFile):
    """The files that an index names, as one file of Keras.

    Args:
        index: The open index, which is closed after it was read.
        open_file: Opens one of the files.

    Raises:
        CheckpointNotFoundError: A file that the index names is missing.
        CorruptCheckpointError: The index or a file is damaged, or two files have a variable of one name.
    """

    def __init__(self, index: ReadableFile, open_file: Callable[[str], ReadableFile]) -> None:
        self.path = index.path
        self.paths = []
        self.layers = None
        self.optimizer: Sequence[str] = ()
        self.vocabularies = {}
        self.assets = {}
        self.tree: dict[str, Any] = {}
        self._files: list[KerasFile] = []
        self._owners: dict[int, KerasFile] = {}
        try:
            for name in _names(index):
                path = os.path.join(os.path.dirname(index.path), name)
                self._open(path, open_file)
        except MilepostError as error:
            self.close()
            raise error.with_context(file=self.path) from None
        finally:
            index.close()

    def _open(self, path: str, open_file: Callable[[str], ReadableFile]) -> None:
        try:
            file = KerasFile(open_file(path))
        except CheckpointNotFoundError:
            raise CheckpointNotFoundError(
                "a file that the index names is missing", file=path, remedy="copy all files of the model"
            ) from None
        self._files.append(file)
        self.paths.append(path)
        pending: list[tuple[dict[str, Any], dict[str, Any], str]] = [(self.tree, file.tree, "")]
        while pending:
            into, level, above = pending.pop()
            for name, below in level.items():
                if isinstance(below, dict):
                    if isinstance(known := into.setdefault(name, {}), dict):
                        pending.append((known, below, f"{above}{name}/"))
                        continue
                elif name not in into:
                    into[name] = below
                    self._owners[id(below)] = file
                    continue
                raise CorruptCheckpointError(
                    "two files of a model have a variable of one name", key=above + name, file=path
                )

    def own_names(self) -> dict[str, str]:
        return {path: name for file in reversed(self._files) for path, name in file.own_names().items()}

    def read_into(self, tensor: Stored, destination: Array) -> None:
        self._owners[id(tensor)].read_into(tensor, destination)

    def read_box(self, tensor: Stored, box: Box, destination: Array) -> None:
        self._owners[id(tensor)].read_box(tensor, box, destination)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return self._owners[id(tensor)].extent(tensor)

    def check(self, tensor: Stored) -> None:
        self._owners[id(tensor)].check(tensor)

    def check_rest(self) -> None:
        for file in self._files:
            file.check_rest()

    def has_checksum(self, tensor: Stored) -> bool:
        return self._owners[id(tensor)].has_checksum(tensor)

    def close(self) -> None:
        for file in self._files:
            file.close()


def _names(index: ReadableFile) -> list[str]:
    """The names of the files that an index names, each once."""
    if index.size > LONGEST:
        raise CorruptCheckpointError(
            "this is not the index of weights of Keras", expected=f"{LONGEST} bytes or less", found=index.size
        )
    files = parse_object(index.read(0, index.size), "the index of weights of Keras").get("weight_map")
    if not isinstance(files, dict) or not files:
        raise CorruptCheckpointError(
            "this is not the index of weights of Keras",
            expected="a weight_map: the files of each object",
            found=reprlib.repr(files),
        )
    names: dict[str, None] = {}
    for key, listed in files.items():
        for name in listed if isinstance(listed, list) else [listed]:
            if not isinstance(name, str) or not is_name_of_file(name):
                raise CorruptCheckpointError(
                    "the index of weights must name its files without directories", key=key, found=reprlib.repr(name)
                )
            names[name] = None
    return list(names)
