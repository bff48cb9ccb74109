"""Reads models in several files, by the index that Hugging Face's libraries write."""

from __future__ import annotations

import functools
import os
import reprlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from milepost.bundle.catalogue import Catalogue
from milepost.bundle.memory import Array
from milepost.coding.json_data import LONGEST, parse_object
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError
from milepost.foreign.pytorch.rebuilt import METADATA
from milepost.foreign.stored import DescribedFile, ForeignFile, ListedFile, Stored, catalogue_of
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
    metadata: dict[str, Any]
    """That of the index and of all files; of two entries of one name, that of the index."""

    def __init__(self, index: ReadableFile, open_shard: Callable[[str], ForeignFile | None]) -> None:
        self.path = index.path
        self.paths: list[str] = []
        self._shards: list[ForeignFile] = []
        self._listings: list[Catalogue | None] = []
        self._named: list[list[str]] = []  # the names that the index says are in each of them
        try:
            self._files, self.metadata = _index(index)
            self._open(open_shard)
        except MilepostError as error:
            self.close()
            raise error.with_context(file=self.path) from None
        finally:
            index.close()
        self.library = self._shards[0].library

    def _open(self, open_shard: Callable[[str], ForeignFile | None]) -> None:
        by_file: dict[str, list[str]] = {}
        for name, file in self._files.items():
            by_file.setdefault(file, []).append(name)
        directory = os.path.dirname(self.path)
        for file, names in by_file.items():
            path = os.path.join(directory, file)
            try:
                shard = open_shard(path)
            except CheckpointNotFoundError:
                raise CheckpointNotFoundError(
                    "a file that the index names is missing",
                    key=names[0],
                    file=path,
                    remedy="copy all files of the model",
                ) from None
            if shard is None:
                raise CorruptCheckpointError(
                    "a file that the index names has an unknown format", file=path, remedy="download the file again"
                )
            self._shards.append(shard)
            if isinstance(shard, DescribedFile):
                self.metadata = shard.metadata | self.metadata
            self._named.append(names)
            self.paths.append(path)
            self._listings.append(shard.listing() if isinstance(shard, ListedFile) else None)
            keys = self._listings[-1].keys if self._listings[-1] is not None else _values_of(shard)
            for name in sorted({*names} - {*keys}):
                raise CorruptCheckpointError(
                    "the index names a tensor that its file does not hold", key=name, file=path
                )

    def listing(self) -> Catalogue | None:
        """All tensors, if each file lists those that the index says are in it, and no others."""
        known = [part for part in self._listings if part is not None]
        if len(known) < len(self._shards) or sum(len(part.keys) for part in known) > len(self._files):
            return None
        return Catalogue.joined(known)

    @functools.cached_property
    def tree(self) -> dict[str, Any]:
        values_by_shard = [_values_of(shard) for shard in self._shards]
        owner = {name: number for number, names in enumerate(self._named) for name in names}
        values = OrderedDict((name, values_by_shard[owner[name]][name]) for name in self._files)
        known = {id(value) for value in values.values() if isinstance(value, Stored)}
        for values_in_shard in values_by_shard:
            for name, value in values_in_shard.items():
                if id(value) in known:  # a second name of a tensor that the index names
                    values.setdefault(name, value)
        noted = [getattr(shard.tree, METADATA, {}) for shard in self._shards if self._has_versions]
        if any(noted):
            vars(values)[METADATA] = {name: each for versions in noted for name, each in versions.items()}
        return values

    @property
    def _has_versions(self) -> bool:
        """Whether the files may have the versions of modules: files of PyTorch do, and those that list their tensors do not."""
        return not any(self._listings)

    @functools.cached_property
    def _owners(self) -> dict[int, ForeignFile]:
        """The file of each tensor."""
        return {id(tensor): shard for shard in self._shards for tensor in _tensors_in(_values_of(shard))}

    def tensors(self) -> dict[str, Stored]:
        return {name: value for name, value in self.tree.items() if isinstance(value, Stored)}

    def read_into(self, tensor: Stored, destination: Array) -> None:
        self._owners[id(tensor)].read_into(tensor, destination)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return self._owners[id(tensor)].extent(tensor)

    def catalogue(self, tensors: Mapping[str, Stored]) -> Catalogue:
        owned: dict[int, dict[str, Stored]] = {}
        for name, tensor in tensors.items():
            owned.setdefault(id(self._owners[id(tensor)]), {})[name] = tensor
        return Catalogue.joined([catalogue_of(shard, owned[id(shard)]) for shard in self._shards if id(shard) in owned])

    def check(self, tensor: Stored) -> None:
        self._owners[id(tensor)].check(tensor)

    def has_checksum(self, tensor: Stored) -> bool:
        return self._owners[id(tensor)].has_checksum(tensor)

    def close(self) -> None:
        for shard in self._shards:
            shard.close()


def _values_of(file: ForeignFile) -> dict[str, Any]:
    """The tensors that a file holds by name, and what else it has, such as extra state of modules."""
    tree = file.tree if isinstance(file.tree, dict) else {}
    return {name: value for name, value in tree.items() if isinstance(name, str)}


def _tensors_in(values: Any) -> Iterator[Stored]:
    """The tensors in nested values."""
    pending, seen = [values], set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, Stored):
            yield value
        elif isinstance(value, (Mapping, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            pending += value.values() if isinstance(value, Mapping) else value


def _index(index: ReadableFile) -> tuple[dict[str, str], dict[str, Any]]:
    """By the name of a tensor, the name of its file; and the metadata."""
    if index.size > LONGEST:
        raise CorruptCheckpointError(
            "this is not the index of a model", expected=f"{LONGEST} bytes or less", found=index.size
        )
    content = parse_object(index.read(0, index.size), "the index of a model")
    files, metadata = content.get("weight_map"), content.get("metadata")
    if not isinstance(files, dict) or not files:
        raise CorruptCheckpointError(
            "this is not the index of a model",
            expected="a weight_map: the file of each tensor",
            found=reprlib.repr(files),
        )
    for name, file in files.items():
        # An index from elsewhere must not lead to other files of this machine.
        if not isinstance(file, str) or not is_name_of_file(file):
            raise CorruptCheckpointError(
                "the index of a model must name its files without directories", key=name, found=reprlib.repr(file)
            )
    return files, metadata if isinstance(metadata, dict) else {}


@functools.lru_cache(maxsize=1024)
def is_name_of_file(path: str) -> bool:
    """Whether a path is the name of a file, and of no directory."""
    return bool(path) and os.path.basename(path) == path and path not in (".", "..")
