"""Reads models in several files, by the index that Hugging Face's libraries write."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from typing import Any

from milepost.bundle.memory import Array
from milepost.coding.json_data import LONGEST, parse_object
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError
from milepost.foreign.stored import ForeignFile, Stored
from milepost.storage import ReadableFile


class ShardedModel:
    """The files that an index names, as one file; see `ForeignFile`.

    Args:
        index: The open index, which is closed after it was read.
        open_shard: Opens one of the files.

    Raises:
        CheckpointNotFoundError: A file that the index names is missing.
        CorruptCheckpointError: The index is damaged, or a file does not hold a tensor that the index names.
    """

    dotted = True
    kind = "torch"

    library = "a model in several files"

    def __init__(self, index: ReadableFile, open_shard: Callable[[str], ForeignFile | None]) -> None:
        self.path = index.path
        self.paths: list[str] = []
        self.tree: dict[str, Any] = {}
        self._shards: dict[str, ForeignFile] = {}
        self._owners: dict[int, ForeignFile] = {}
        try:
            self._open(_weight_map(index), open_shard)
        except MilepostError as error:
            self.close()
            raise error.with_context(file=self.path) from None
        finally:
            index.close()
        self.library = next((shard.library for shard in self._shards.values()), self.library)

    def _open(self, files: dict[str, str], open_shard: Callable[[str], ForeignFile | None]) -> None:
        directory = os.path.dirname(self.path)
        for name, file in files.items():
            shard = self._shards.get(file)
            if shard is None:
                path = os.path.join(directory, file)
                try:
                    shard = open_shard(path)
                except CheckpointNotFoundError:
                    raise CheckpointNotFoundError(
                        "a file that the index names is missing",
                        key=name,
                        file=path,
                        remedy="copy all files of the model",
                    ) from None
                if shard is None:
                    raise CorruptCheckpointError(
                        "a file that the index names has an unknown format", file=path, remedy="download the file again"
                    )
                self._shards[file] = shard
                self.paths.append(path)
            tensor = shard.tree.get(name) if isinstance(shard.tree, dict) else None
            if not isinstance(tensor, Stored):
                raise CorruptCheckpointError(
                    "the index names a tensor that its file does not hold",
                    key=name,
                    file=os.path.join(directory, file),
                )
            self.tree[name] = tensor
            self._owners[id(tensor)] = shard
        for shard in self._shards.values():
            for name, tensor in shard.tree.items():
                if id(tensor) in self._owners:  # a second name of a tensor that the index names
                    self.tree.setdefault(name, tensor)

    def read_into(self, tensor: Stored, destination: Array) -> None:
        self._owners[id(tensor)].read_into(tensor, destination)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return self._owners[id(tensor)].extent(tensor)

    def check(self, tensor: Stored) -> None:
        self._owners[id(tensor)].check(tensor)

    def has_checksum(self, tensor: Stored) -> bool:
        return self._owners[id(tensor)].has_checksum(tensor)

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()


def _weight_map(index: ReadableFile) -> dict[str, str]:
    """By the name of a tensor, the name of its file."""
    if index.size > LONGEST:
        raise CorruptCheckpointError(
            "this is not the index of a model", expected=f"{LONGEST} bytes or less", found=index.size
        )
    files = parse_object(index.read(0, index.size), "the index of a model").get("weight_map")
    if not isinstance(files, dict) or not files:
        raise CorruptCheckpointError(
            "this is not the index of a model",
            expected="a weight_map: the file of each tensor",
            found=reprlib.repr(files),
        )
    for name, file in files.items():
        # An index from elsewhere must not lead to other files of this machine.
        if not isinstance(file, str) or not file or os.path.basename(file) != file or file in (".", ".."):
            raise CorruptCheckpointError(
                "the index of a model must name its files without directories", key=name, found=reprlib.repr(file)
            )
    return files
