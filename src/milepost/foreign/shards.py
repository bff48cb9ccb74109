"""Models that are spread over several files, by the index that Hugging Face's libraries write."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable
from typing import Any

from milepost.bundle.memory import Array
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError
from milepost.foreign.json_data import LONGEST, parse_object
from milepost.foreign.stored import Source, Stored
from milepost.storage import ReadableFile


class ShardedModel:
    """The files of an index as one; see `Source`.

    Args:
        index: The index.
        open_shard: Opens one of the files.
    """

    dotted = True
    kind = "torch"

    def __init__(self, index: ReadableFile, open_shard: Callable[[str], Source | None]) -> None:
        self.path = index.path
        self.paths: list[str] = []
        self.tree: dict[str, Any] = {}
        self._sources: dict[str, Source] = {}
        self._owners: dict[int, Source] = {}
        try:
            self._open(_weight_map(index), open_shard)
        except MilepostError as error:
            self.close()
            raise error.with_context(file=self.path) from None
        finally:
            index.close()

    def _open(self, files: dict[str, str], open_shard: Callable[[str], Source | None]) -> None:
        directory = os.path.dirname(self.path)
        for name, file in files.items():
            source = self._sources.get(file)
            if source is None:
                path = os.path.join(directory, file)
                try:
                    source = open_shard(path)
                except CheckpointNotFoundError:
                    raise CheckpointNotFoundError(
                        "a file that the index names is missing",
                        key=name,
                        file=path,
                        remedy="copy all files of the model",
                    ) from None
                if source is None:
                    raise CorruptCheckpointError("a file that the index names is of no known format", file=path)
                self._sources[file] = source
                self.paths.append(path)
            tensor = source.tree.get(name) if isinstance(source.tree, dict) else None
            if not isinstance(tensor, Stored):
                raise CorruptCheckpointError(
                    "the index names a tensor that its file does not hold",
                    key=name,
                    file=os.path.join(directory, file),
                )
            self.tree[name] = tensor
            self._owners[id(tensor)] = source
        for source in self._sources.values():
            for name, tensor in source.tree.items():
                if id(tensor) in self._owners:  # another name of a tensor that the index names
                    self.tree.setdefault(name, tensor)

    def read_into(self, tensor: Stored, destination: Array) -> None:
        self._owners[id(tensor)].read_into(tensor, destination)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return self._owners[id(tensor)].extent(tensor)

    def check(self, tensor: Stored) -> None:
        self._owners[id(tensor)].check(tensor)

    def close(self) -> None:
        for source in self._sources.values():
            source.close()


def _weight_map(index: ReadableFile) -> dict[str, str]:
    """Name to file, sorted by neither."""
    if index.size > LONGEST:
        raise CorruptCheckpointError("not the index of a model", expected=f"{LONGEST} bytes or less", found=index.size)
    files = parse_object(index.read(0, index.size), "the index of a model").get("weight_map")
    if not isinstance(files, dict) or not files:
        raise CorruptCheckpointError(
            "not the index of a model", expected="a weight_map, the file of each tensor", found=reprlib.repr(files)
        )
    for name, file in files.items():
        # A file elsewhere on this machine is no part of a model that came from somewhere else.
        if not isinstance(file, str) or not file or os.path.basename(file) != file or file in (".", ".."):
            raise CorruptCheckpointError(
                "the index of a model names its files without directories", key=name, found=reprlib.repr(file)
            )
    return files
