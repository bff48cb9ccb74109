"""Writes a V2 checkpoint: data files (see `layout`) and their index.

::

    index := table of  "" -> BundleHeader,  slice key -> entry of a piece,  key -> entry of a tensor

`milepost.table.block` has the table, `milepost.bundle.format.messages` the header, `milepost.bundle.format.entry` the entries and
`milepost.bundle.format.slices` the slice keys. With an alignment of 1, all files are byte for byte what TensorFlow's SaveV2 writes for the
same tensors. Source: TensorFlow 2.21, ``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.counting import counter
from milepost.bundle.format.entry import Entry, encode
from milepost.bundle.format.messages import BundleHeader
from milepost.bundle.format.slices import check_piece, covers, slice_key
from milepost.bundle.layout import ALIGNMENT, Placed, write_tensors
from milepost.bundle.memory import Array
from milepost.collector import collection_paused
from milepost.errors import MilepostError, MismatchError, UnsupportedError
from milepost.forks import ForkableLock
from milepost.storage import WritableFile
from milepost.table import TableWriter
from milepost.tensor import DType, PiecewiseArray, TensorSlice, TensorSpec
from milepost.tensor.dtype import STRING, VARIANT

HEADER_KEY: Final = b""
VERSION: Final = 1
"""The number that TensorFlow calls ``kTensorBundleVersion``."""


class _Sliced(NamedTuple):
    spec: TensorSpec
    boxes: list[TensorSlice]


class BundleWriter:
    """Writes a checkpoint. First add all tensors, then write each shard, then get the index.

    Arrays are not copied. They must not change until their shard was written.

    Args:
        shards: The number of data files.
        alignment: Tensors begin at multiples of it. With 1, files are those that TensorFlow would write.
        named: The number of data files that is in their names, if it is a larger one: TensorFlow opens only the files that entries name.

    Example:
        >>> from milepost.storage import MemoryStorage
        >>> storage, writer = MemoryStorage(), BundleWriter()
        >>> writer.add("weights", np.ones(3, np.float32))
        >>> with storage.create("x.data-00000-of-00001") as file:
        ...     writer.write_shard(0, file)
        >>> with storage.create("x.index") as file:
        ...     file.write(0, [writer.index()])
    """

    def __init__(self, *, shards: int = 1, alignment: int = ALIGNMENT, named: int | None = None) -> None:
        if shards < 1 or alignment < 1:
            raise ValueError(f"there is no bundle of {shards} shards aligned to {alignment}")
        self._named = named or shards
        self._shards: list[list[Placed] | None] = [[] for _ in range(shards)]
        self._alignment = alignment
        self._keys: set[bytes] = set()
        self._sliced: dict[bytes, _Sliced] = {}
        self._entries: dict[bytes, bytes] = {}
        self._lock = ForkableLock()
        self._bytes_written = 0

    @property
    def bytes_written(self) -> int:
        """The bytes of data written so far. This may be read while a shard is written."""
        return self._bytes_written

    def add(self, key: str, array: Any, dtype: DType | None = None, *, shard: int = 0) -> None:
        """Adds a tensor.

        Args:
            key: Its name.
            array: An array of any layout and byte order, also in pieces. A number or a string is accepted too.
            dtype: Its element type, if the array does not tell it: arrays of objects hold strings or variants.
            shard: The number of its data file.

        Raises:
            MismatchError: ``dtype`` is not that of the array.
            UnsupportedError: The key is used already or is impossible, or the element type cannot be stored.
        """
        self.add_all([(key, array, dtype)], shard=shard)

    def add_all(self, tensors: Iterable[tuple[str, Any, DType | None]], *, shard: int = 0) -> None:
        """Adds tensors.

        Args:
            tensors: The key, the array and the element type of each, as for `add`.
            shard: The number of their data file.

        Raises:
            MismatchError: As for `add`. No tensor was added.
            UnsupportedError: As for `add`.
        """
        placed = []
        with collection_paused():
            for key, array, dtype in tensors:
                if type(array) is not np.ndarray and type(array) is not PiecewiseArray:
                    array = _as_array(array)
                if dtype is None or (array.dtype is not dtype.numpy and array.dtype != dtype.numpy):
                    dtype = _dtype(key, array, dtype)
                placed.append(Placed(_name(key), array, dtype))
            self._take(shard, placed)

    def add_slice(
        self,
        key: str,
        full_shape: Sequence[int],
        box: TensorSlice,
        array: Any,
        dtype: DType | None = None,
        *,
        shard: int = 0,
    ) -> None:
        """Adds a piece of a tensor. The pieces of one tensor may go to different shards.

        Args:
            key: The name of the whole tensor.
            full_shape: The shape of the whole tensor.
            box: The box of the piece in the tensor.
            array: The piece.
            dtype: Its element type, as for `add`.
            shard: The number of its data file.

        Raises:
            MismatchError: The piece does not fit the box, the shape or the pieces before.
            UnsupportedError: As for `add`.
        """
        if type(array) is not np.ndarray and type(array) is not PiecewiseArray:
            array = _as_array(array)
        shape = tuple(full_shape)
        try:
            check_piece(box, shape)
        except MismatchError as error:
            raise error.with_context(key=key) from None
        if array.shape != box.shape(shape):
            raise MismatchError(
                "a slice whose array has another shape", key=key, expected=box.shape(shape), found=array.shape
            )
        if covers(box, shape):
            self.add(key, array, dtype, shard=shard)
            return
        name = _name(key)
        spec = TensorSpec(_dtype(key, array, dtype), shape)
        sliced = self._pieces_of(key, name, spec)
        self._take(shard, [Placed(slice_key(name, box), array, spec.dtype)])
        self._note_piece(name, sliced, box)

    def add_stored(
        self, key: str, full_shape: Sequence[int], box: TensorSlice | None, entry: Entry, *, shard: int
    ) -> None:
        """Adds a tensor, or a piece of one, whose bytes are in a data file already. That data file is not written.

        Args:
            key: The name of the whole tensor.
            full_shape: The shape of the whole tensor.
            box: The box of the piece in the tensor; None for the whole tensor.
            entry: Where the bytes are in the file. The number of its data file is ignored.
            shard: The number of the data file in this checkpoint.

        Raises:
            MismatchError: As for `add_slice`.
            UnsupportedError: As for `add`.
        """
        if self._shards[shard]:
            raise ValueError(f"shard {shard} is to be written")
        name, shape = _name(key), tuple(full_shape)
        stored, sliced = name, None
        if box is not None and not covers(box, shape):
            sliced = self._pieces_of(key, name, TensorSpec(entry.dtype, shape))
            stored = slice_key(name, box)
        if stored in self._keys:
            raise _duplicate(key)
        self._keys.add(stored)
        self._entries[stored] = encode(entry.dtype, entry.shape, shard, entry.offset, entry.size, entry.crc)
        self._shards[shard] = None
        if sliced is not None and box is not None:
            self._note_piece(name, sliced, box)

    def write_shard(self, shard: int, file: WritableFile) -> None:
        """Writes the tensors of a shard, and forgets them.

        The file is neither synced nor closed. Different threads may write different shards.

        Args:
            shard: The number of the shard.
            file: A new file.

        Raises:
            StorageError: The file cannot be written.
            UnsupportedError: An array of objects has an element that is not a string.
        """
        tensors = self._shards[shard]
        if tensors is None:
            raise ValueError(f"shard {shard} was written before")
        count = counter()

        def written(size: int) -> None:
            with self._lock:
                self._bytes_written += size
            if count is not None:
                count(size)

        entries = write_tensors(tensors, shard, file, alignment=self._alignment, written=written)
        with self._lock:
            if self._entries:
                self._entries.update(entries)
            else:
                self._entries = entries
        self._shards[shard] = None

    @property
    def entries(self) -> Mapping[bytes, bytes]:
        """The entries of what was written so far, by key; see `milepost.bundle.merging`."""
        return self._entries

    @property
    def pieces(self) -> Mapping[bytes, tuple[TensorSpec, Sequence[TensorSlice]]]:
        """The tensors that were given in pieces, by key, each with its boxes."""
        return self._sliced

    def index(self) -> bytes:
        """The index of the checkpoint, after all shards were written."""
        if unwritten := [shard for shard, tensors in enumerate(self._shards) if tensors is not None]:
            raise ValueError(f"shards {unwritten} were not written yet")
        in_pieces = {key: encode(spec.dtype, spec.shape, slices=boxes) for key, (spec, boxes) in self._sliced.items()}
        entries = self._entries | in_pieces if in_pieces else self._entries
        table = TableWriter()
        table.add([header(self._named)])
        keys = sorted(entries)
        table.add(zip(keys, map(entries.__getitem__, keys), strict=True))
        return table.finish()

    def _pieces_of(self, key: str, name: bytes, spec: TensorSpec) -> _Sliced:
        """The pieces of a tensor that were added before."""
        sliced = self._sliced.get(name)
        if sliced is None:
            if name in self._keys:
                raise _duplicate(key)
            return _Sliced(spec, [])
        if sliced.spec != spec:
            raise MismatchError("slices of different tensors under one key", key=key, expected=sliced.spec, found=spec)
        return sliced

    def _note_piece(self, name: bytes, sliced: _Sliced, box: TensorSlice) -> None:
        sliced.boxes.append(box)
        self._sliced[name] = sliced
        self._keys.add(name)

    def _take(self, shard: int, placed: Sequence[Placed]) -> None:
        tensors = self._shards[shard]
        if tensors is None:
            raise ValueError(f"shard {shard} was written before")
        keys = {tensor.key for tensor in placed}
        if len(keys) < len(placed) or not keys.isdisjoint(self._keys):
            raise _duplicate(_first_again(placed, self._keys))
        if self._keys:
            self._keys |= keys
        else:
            self._keys = keys  # of very many tensors at once, without a copy
        tensors += placed


def header(shards: int) -> tuple[bytes, bytes]:
    """The first row of the index of a checkpoint with so many data files."""
    message = BundleHeader(num_shards=shards, endianness=int(sys.byteorder == "big"))
    message.version.producer = VERSION
    return HEADER_KEY, message.SerializeToString()


def _as_array(value: Any) -> Array:
    if isinstance(value, bytes | str):
        return np.array(value, object)
    array = np.asarray(value)
    # NumPy's strings lose zeros at their ends
    return np.array(value, object) if array.dtype.kind in "SU" and not isinstance(value, np.ndarray) else array


def _name(key: str) -> bytes:
    try:
        name = key.encode()
    except UnicodeEncodeError:
        name = b""
    if not name or name[0] == 0:
        raise UnsupportedError(
            "a key that an index cannot hold",
            key=repr(key),
            expected="text that is not empty and does not begin with NUL",
            remedy="use another name for the object or the key of a dict at the root",
        )
    return name


def _dtype(key: str, array: Array | PiecewiseArray, dtype: DType | None) -> DType:
    if dtype is not None and array.dtype == dtype.numpy:
        return dtype
    try:
        array_dtype = DType.of(array)
    except MilepostError as error:
        raise error.with_context(key=key) from None
    if dtype is None or dtype is array_dtype or (dtype is VARIANT and array_dtype is STRING):
        return dtype or array_dtype
    raise MismatchError("the array has another element type", key=key, expected=dtype, found=array.dtype)


def _first_again(placed: Iterable[Placed], before: set[bytes]) -> str:
    """The name of the first tensor whose key was used before."""
    seen = set(before)
    for tensor in placed:
        if tensor.key in seen:
            return tensor.name
        seen.add(tensor.key)
    raise AssertionError("no key is used twice")


def _duplicate(key: str) -> UnsupportedError:
    return UnsupportedError("two tensors under one key", key=key, remedy="give each tensor a key of its own")
