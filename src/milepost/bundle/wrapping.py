"""The base of readers that change what another reader says of some tensors."""

from __future__ import annotations

from typing import Self

from milepost.bundle.catalogue import Catalogue
from milepost.bundle.format.entry import Entry
from milepost.bundle.interface import BundleReader, Origin
from milepost.bundle.memory import Array
from milepost.storage import ReadableFile
from milepost.tensor import TensorSlice, TensorSpec


class WrappingReader:
    """An open checkpoint with the methods of `BundleReader`, which are those of another reader unless a class says otherwise.

    Args:
        reader: The other reader.
    """

    def __init__(self, reader: BundleReader) -> None:
        self._reader = reader

    @property
    def prefix(self) -> str:
        return self._reader.prefix

    @property
    def shard_paths(self) -> list[str]:
        return self._reader.shard_paths

    @property
    def origin(self) -> Origin:
        return self._reader.origin

    def keys(self) -> list[str]:
        return self._reader.keys()

    def __contains__(self, key: object) -> bool:
        return key in self._reader

    def spec(self, key: str) -> TensorSpec:
        return self._reader.spec(key)

    def entry(self, key: str) -> Entry:
        return self._reader.entry(key)

    def catalogue(self) -> Catalogue:
        return self._reader.catalogue()

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        return self._reader.extent(key)

    def runs(self, key: str, box: TensorSlice | None = None) -> list[tuple[ReadableFile, Entry]] | None:
        return self._reader.runs(key, box)

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        return self._reader.read(key, box)

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        self._reader.read_into(key, destination, box)

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        self._reader.check(key, box)

    def map(self, key: str) -> Array:
        return self._reader.map(key)

    def verify(self) -> tuple[int, int]:
        return self._reader.verify()

    def check_files(self) -> None:
        self._reader.check_files()

    def hold(self) -> None:
        self._reader.hold()

    def is_replaced(self) -> bool:
        return self._reader.is_replaced()

    def release(self, *, for_good: bool) -> None:
        self._reader.release(for_good=for_good)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
