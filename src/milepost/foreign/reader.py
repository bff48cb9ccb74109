"""An open file of another library, with the same methods as an open checkpoint."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np

from milepost.bundle.entry import Entry
from milepost.bundle.memory import Array, new_array
from milepost.bundle.problems import no_such_key
from milepost.bundle.slices import index_of, ranges
from milepost.bundle.transfer import read_chunks
from milepost.errors import MilepostError, UnsupportedError
from milepost.foreign.items import Item, items_of, walked
from milepost.foreign.opaque import Opaque
from milepost.foreign.rebuilt import refusal
from milepost.foreign.stored import Source, Stored
from milepost.graph.numbers import NUMBERS
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSlice, TensorSpec

_INT64: Final = range(-(1 << 63), 1 << 63)


class ForeignReader:
    """What `BundleReader` asks for, of a file or directory of another library.

    Args:
        source: The open file.

    Attributes:
        prefix: The path.
        root: Everything there is, by name.

    Raises:
        CorruptCheckpointError: The names in it have no end.
    """

    def __init__(self, source: Source) -> None:
        self.prefix = source.path
        self._source = source
        self._stored: dict[str, Stored] = {}
        self._plain: dict[str, Any] = {}
        self._objects: dict[str, Opaque] = {}
        try:
            self.root: Item = items_of(source.tree, dotted=source.dotted)
        except MilepostError as error:
            source.close()
            raise error.with_context(file=self.prefix) from None
        for item in walked(self.root):
            if item.opaque is not None:
                self._objects[item.key] = item.opaque
            if isinstance(item.value, Stored):
                self._stored[item.key] = item.value
            elif _is_value(item.value):
                self._plain[item.key] = item.value

    @property
    def kind(self) -> str:
        """The kind of plain state that tensors are to the library that wrote this; empty for arrays."""
        return self._source.kind

    @property
    def packs(self) -> bool:
        """Whether this is of PyTorch, where objects say what state they are in and wrappers add levels."""
        return self._source.dotted

    @property
    def stored_bytes(self) -> int:
        """Bytes that all tensors would take in memory, each for itself."""
        return sum(stored.spec.nbytes for stored in self._stored.values())

    @property
    def shard_paths(self) -> list[str]:
        return self._source.paths

    @property
    def objects(self) -> dict[str, str]:
        """The objects that only code could make, with their classes; what they hold may be read."""
        return {key: str(opaque) for key, opaque in sorted(self._objects.items())}

    def add(self, key: str, value: Array | Stored) -> None:
        """Adds a value under a key that nothing else has, as it is needed for an object."""
        if isinstance(value, Stored):
            self._stored[key] = value
        else:
            self._plain[key] = value

    def are_equal(self, first: Stored, second: Stored) -> bool:
        """Whether two tensors have the same bytes, without the memory that they would take."""
        if first is second:
            return True
        if first.spec != second.spec or first.local != second.local:
            return False
        places = self._source.extent(first), self._source.extent(second)
        if None in places:
            arrays = [new_array(first.spec.dtype, first.spec.shape) for _ in range(2)]
            for stored, array in zip((first, second), arrays, strict=True):
                self._source.read_into(stored, array)
            return arrays[0].tobytes() == arrays[1].tobytes()
        if places[0] == places[1]:
            return True
        chunks = [read_chunks(*place, first.spec.nbytes) for place in places if place is not None]
        return not first.spec.nbytes or all(np.array_equal(a, b) for a, b in zip(*chunks, strict=True))

    def keys(self) -> list[str]:
        return sorted([*self._stored, *self._plain])

    def __contains__(self, key: object) -> bool:
        return key in self._stored or key in self._plain

    def spec(self, key: str) -> TensorSpec:
        stored = self._stored.get(key)
        if stored is not None:
            return stored.spec
        array = self._plain_array(key)
        return TensorSpec(DType.of(array), array.shape)

    def entry(self, key: str) -> Entry:
        spec = self.spec(key)
        return Entry(spec.dtype, spec.shape, size=spec.nbytes)

    def extent(self, key: str) -> tuple[ReadableFile, Entry] | None:
        self.spec(key)
        return None

    def read(self, key: str, box: TensorSlice | None = None) -> Array:
        stored = self._stored.get(key)
        if stored is None:
            whole = self._plain_array(key).copy()
        else:
            try:
                self._source.check(stored)
                whole = new_array(stored.spec.dtype, stored.spec.shape)
                self._source.read_into(stored, whole)
            except MilepostError as error:
                raise error.with_context(key=key, file=self.prefix) from None
        return whole if box is None else whole[index_of(ranges(box, whole.shape))].copy()

    def read_into(self, key: str, destination: Array, box: TensorSlice | None = None) -> None:
        stored = self._stored.get(key)
        if stored is None or box is not None:
            destination[...] = self.read(key, box)
            return
        try:
            self._source.read_into(stored, destination)
        except MilepostError as error:
            raise error.with_context(key=key, file=self.prefix) from None

    def check(self, key: str, box: TensorSlice | None = None) -> None:
        stored = self._stored.get(key)
        if stored is None:
            self._plain_array(key)
            return
        try:
            self._source.check(stored)
        except MilepostError as error:
            raise error.with_context(key=key, file=self.prefix) from None

    def map(self, key: str) -> Array:
        self.spec(key)
        raise UnsupportedError(
            "tensors in files of other libraries are not mapped", key=key, file=self.prefix, remedy="use read()"
        )

    def verify(self) -> None:
        for key, stored in self._stored.items():
            self.check(key)
            place = self._source.extent(stored)
            if place is None:
                self.read(key)
            elif stored.spec.nbytes:
                for _ in read_chunks(*place, stored.spec.nbytes):
                    pass

    def check_files(self) -> None:
        """Opening it has read all there is to know about the files."""

    def hold(self) -> None:
        """They are open."""

    def is_replaced(self) -> bool:
        """The files are open since the names in them were read."""
        return False

    def release(self, *, for_good: bool) -> None:
        if for_good:
            self.close()

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _plain_array(self, key: str) -> Array:
        if key in self._objects and key not in self._plain:
            raise refusal(self._objects[key]).with_context(key=key, file=self.prefix)
        array = as_value(self._plain.get(key))
        if array is None:
            raise no_such_key(key, self.keys(), self.prefix)
        return array


def _is_value(value: Any) -> bool:
    """Whether `as_value` makes an array of it; most plain values are never asked for, and would take more memory so."""
    if type(value) is int:
        return value in _INT64
    return type(value) in NUMBERS or isinstance(value, (str, bytes, np.ndarray, np.generic))


def as_value(value: Any) -> Array | None:
    """A plain value as an array, or None if no array says the same."""
    if isinstance(value, np.ndarray):
        return value
    if not _is_value(value):
        return None
    if type(value) in NUMBERS:
        return np.array(value, NUMBERS[type(value)].numpy)
    if isinstance(value, (str, bytes)):
        array = np.empty((), object)
        array[()] = value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
        return array
    return np.asarray(value)
