"""Reads HDF5 files with h5py, which is imported when the first one is read or written.

A file cannot make the reader follow links to other places or files: only names that it holds itself are followed. Elements must lie in
the file: in one run of bytes, or in as many chunks as the shape requires, uncompressed or compressed by gzip or LZF. No other filter is
loaded, and none of the two twice. So an array takes at most about 1,100 times the bytes that the file has for it, but for 64 MiB of all arrays,
and `opening` limits all arrays together. An error
of the HDF5 library about damaged structures becomes a `CorruptCheckpointError`. Damage with which the library does not end is found before
(`headers`, `trees`, `reads`).
Source: HDF5 File Format Specification 3.0; h5py 3.14.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from milepost.bundle.memory import Array
from milepost.coding.depth import DEEPEST
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign.hdf5.headers import Hdf5Headers
from milepost.foreign.hdf5.reads import Hdf5Reads
from milepost.foreign.stored import Stored
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSpec

MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_FILTERS: Final = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "LZF"}
_MOST_EXPANDED: Final = 1100
"""The most bytes of an array for each of its bytes in the file. gzip reaches 1,032."""
_SMALL: Final = 1 << 20
"""The most bytes of an array to which this limit does not apply."""
_ROOM: Final = 64 << 20
"""The most bytes by which all such arrays together may exceed it."""
_COMPRESSIONS: Final = (1, 32000)
_LONGER: Final = 1 << 12
"""The bytes by which a compressed chunk may be longer than its elements: gzip adds 5 to each 16 KiB, and a few."""
_MOST_OBJECTS: Final = 1_000_000
_BFLOAT16: Final = "bfloat16"


class Dataset(NamedTuple):
    """The place of a tensor in the file.

    Attributes:
        name: The name of the dataset.
        offset: The position of its elements in the file, if they are one run of bytes there as in memory; otherwise None.
    """

    name: str
    offset: int | None


def import_h5py(path: str) -> Any:
    """Imports h5py.

    Args:
        path: The file that needs it.

    Raises:
        UnsupportedError: It is not installed.
    """
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise UnsupportedError(
            "milepost needs the library h5py to read or write files of Keras",
            file=path,
            expected="a checkpoint, or h5py for this HDF5 file",
            found=f"{type(error).__name__}: {error}",
            remedy='run: pip install "milepost[keras]"',
        ) from error


class Hdf5File:
    """An open HDF5 file.

    Args:
        file: The file, or the part of one that is an HDF5 file. It stays open.

    Attributes:
        root: The outermost group of h5py.

    Raises:
        CorruptCheckpointError: h5py cannot read it.
        UnsupportedError: h5py is not installed.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._checked: set[str] = set()
        self._room = _ROOM
        self._h5py = import_h5py(file.path)
        with self._translated():
            self._headers = Hdf5Headers(file)
            for position in self._headers.roots:
                self._headers.check(position)
            self.root = self._h5py.File(Hdf5Reads(file, self._headers.offset, self._headers.length), "r")

    def tree(self) -> dict[str, Any]:
        """The datasets as nested dicts, by the names of groups. Groups without datasets are left out.

        Raises:
            CorruptCheckpointError: The file is damaged.
            UnsupportedError: It has links, types or filters that milepost does not read.
        """
        with self._translated():
            tree: dict[str, Any] = {}
            seen: dict[Any, str] = {}
            count = 0
            pending = [(self.root, "", tree)]
            while pending:
                group, path, level = pending.pop()
                self._check_once(seen, group, path)
                for name in group:
                    count += 1
                    inside = f"{path}/{name}" if path else name
                    if count > _MOST_OBJECTS or inside.count("/") >= DEEPEST:
                        raise UnsupportedError(
                            "the HDF5 file has too many objects or levels",
                            key=inside[:200],
                            expected=f"{_MOST_OBJECTS} objects or fewer, and {DEEPEST} levels",
                            remedy="save the state in several files",
                        )
                    member = self._member(group, name, inside)
                    if isinstance(member, self._h5py.Group):
                        level[name] = {}
                        pending.append((member, inside, level[name]))
                    else:
                        level[name] = self._stored(member, inside)
            return _without_empty(tree)

    def texts(self, group: Any, name: str) -> list[str] | None:
        """An attribute that is a list of texts, in one part or several as Keras divides long ones; None if there is none.

        Raises:
            CorruptCheckpointError: It is something else.
        """
        with self._translated():
            names = [name] if name in group.attrs else []
            while not names or names[0] != name:
                part = f"{name}{len(names)}"
                if part not in group.attrs:
                    break
                names.append(part)
            if not names:
                return None
            texts: list[str] = []
            for part in names:
                listed = self._texts(group.attrs, part)
                if listed is None:
                    raise CorruptCheckpointError(
                        "an attribute of the HDF5 file is not a list of names", key=f"{group.name}@{part}"
                    )
                texts += listed
            return texts

    def text(self, path: str, name: str) -> str | None:
        """An attribute of the group at a path that is one text; None if there is no such group or text.

        Raises:
            CorruptCheckpointError: It is damaged.
        """
        with self._translated():
            group = self.root.get(path)
            if not isinstance(group, self._h5py.Group) or name not in group.attrs:
                return None
            texts = self._texts(group.attrs, name)
            return texts[0] if texts and len(texts) == 1 and isinstance(texts[0], str) else None

    def _texts(self, attributes: Any, name: str) -> list[str] | None:
        """The texts of an attribute; None if it has other elements. Those are not read: with damaged types, the library may end the process."""
        attribute = attributes.get_id(name)
        if attribute.shape is not None and 0 in attribute.shape:
            return []
        if self._h5py.check_string_dtype(attribute.dtype) is None and attribute.dtype.kind != "S":
            return None
        listed = np.asarray(attributes[name]).reshape(-1).tolist()
        return [each.decode() if isinstance(each, bytes) else each for each in listed]

    def read_into(self, place: Dataset, destination: Array, index: tuple[slice, ...] = ()) -> None:
        """Reads a dataset, or a box of it, into a contiguous array."""
        if place.offset is not None and not index:
            if destination.size:
                self._file.read_into(place.offset, destination.reshape(-1).view(np.uint8))
            return
        with self._translated():
            dataset = self.root[place.name]
            self._check_chunks(dataset, place.name)
            array = np.asarray(dataset[index or ()])
            destination[...] = array.view(destination.dtype) if array.dtype.kind == "V" else array

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it was only read
            self.root.close()

    def _check_once(self, seen: dict[Any, str], group: Any, path: str) -> None:
        address = self._h5py.h5o.get_info(group.id).addr
        if address in seen:
            raise UnsupportedError(
                "a group of the HDF5 file is in two places",
                key=path,
                found=f"the group {seen[address]!r:.80} again",
                remedy="save the state without it",
            )
        seen[address] = path

    def _member(self, group: Any, name: str, path: str) -> Any:
        if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
            raise UnsupportedError(
                "the HDF5 file has a link to another place, which milepost does not follow",
                key=path,
                expected="a dataset or a group of this file",
                found=type(group.get(name, getlink=True)).__name__,
                remedy="copy the dataset or group that it leads to into the file, with h5py",
            )
        self._headers.check(group.id.links.get_info(name.encode(errors="surrogateescape")).u)
        member = group[name]
        if not isinstance(member, (self._h5py.Group, self._h5py.Dataset)):
            raise UnsupportedError(
                "the HDF5 file holds something that is neither a dataset nor a group",
                key=path,
                found=type(member).__name__,
                remedy="save the state without it",
            )
        return member

    def _stored(self, dataset: Any, path: str) -> Stored:
        try:
            dtype, is_native = self._dtype(dataset)
            if dataset.shape is None:
                raise UnsupportedError("a dataset of the HDF5 file has no value")
            spec = TensorSpec(dtype, tuple(int(each) for each in dataset.shape))
            return Stored(spec, Dataset(path, self._offset(dataset, spec, is_native=is_native)))
        except MilepostError as error:
            raise error.with_context(key=path) from None

    def _dtype(self, dataset: Any) -> tuple[DType, bool]:
        """The element type of a dataset, and whether its bytes are those of memory."""
        dtype = dataset.dtype
        is_other = dtype.itemsize == 2 and dtype.kind not in "biuf" and "dtype" in dataset.attrs
        if is_other and self._texts(dataset.attrs, "dtype") == [_BFLOAT16]:
            return DType.of(ml_dtypes.bfloat16), True
        if dtype.kind not in "biufc":
            raise UnsupportedError(
                "milepost does not read this element type of HDF5",
                expected="numbers or truth values",
                found=f"{dtype!s:.80}",
                remedy="read it with h5py",
            )
        return DType.of(dtype.newbyteorder("=")), bool(dtype.isnative)

    def _offset(self, dataset: Any, spec: TensorSpec, *, is_native: bool) -> int | None:
        """Checks how the elements are stored. Returns their position if they are one run of bytes, and None otherwise."""
        h5d, plain = self._h5py.h5d, dataset.id.get_create_plist()
        layout, size = plain.get_layout(), dataset.id.get_storage_size()
        if layout == h5d.VIRTUAL or plain.get_external_count():
            raise UnsupportedError(
                "a dataset whose elements are in other files is not read",
                expected="elements in the HDF5 file itself",
                found="a virtual dataset" if layout == h5d.VIRTUAL else "external storage",
                remedy="copy the dataset into the file, with h5py",
            )
        filters = [plain.get_filter(number)[0] for number in range(plain.get_nfilters())]
        if unknown := [each for each in filters if each not in _FILTERS]:
            raise UnsupportedError(
                "milepost does not read datasets with this filter of HDF5",
                expected=f"none, or one of {', '.join(_FILTERS.values())}",
                found=f"the filter {unknown[0]}",
                remedy="write the file again without compression, with h5py",
            )
        if sum(each in _COMPRESSIONS for each in filters) > 1:
            raise UnsupportedError(
                "a dataset of the HDF5 file is compressed more than once",
                expected="gzip or LZF, once",
                found=", ".join(_FILTERS[each] for each in filters),
                remedy="write the file again without compression, with h5py",
            )
        if layout == h5d.CHUNKED:
            chunk = math.prod(plain.get_chunk()) * spec.dtype.itemsize
            self._room -= max(0, spec.nbytes - _MOST_EXPANDED * size)
            if spec.nbytes > max(_SMALL, _MOST_EXPANDED * size) or chunk > max(_SMALL, spec.nbytes) or self._room < 0:
                raise UnsupportedError(
                    "a dataset would take far more memory than the file has bytes for it",
                    expected=f"at most {_MOST_EXPANDED} times {size} bytes, in chunks that are no larger",
                    found=f"{spec.nbytes} bytes, in chunks of {chunk}",
                    remedy="write the file again without compression, with h5py",
                )
            return None
        if size != spec.nbytes:
            raise CorruptCheckpointError(
                "the HDF5 file does not hold all elements of a dataset", expected=f"{spec.nbytes} bytes", found=size
            )
        offset = dataset.id.get_offset() if layout == h5d.CONTIGUOUS else None
        if offset is None:
            return None
        if offset + size > self._file.size:
            raise CorruptCheckpointError(
                "the HDF5 file is truncated", expected=f"{offset + size} bytes or more", found=self._file.size
            )
        return int(offset) if is_native else None

    def _check_chunks(self, dataset: Any, path: str) -> None:
        """Checks where the chunks of a dataset are. With a chunk of no bytes, h5py's LZF filter does not end. A chunk that is too long may be
        a bomb: the library decompresses all of it, whatever its elements take."""
        if path in self._checked or dataset.chunks is None:
            return
        chunks: list[Any] = []
        dataset.id.chunk_iter(chunks.append)
        elements = math.prod(dataset.chunks) * dataset.dtype.itemsize
        longest = elements + elements // 16 + _LONGER
        end = 0
        for chunk in sorted(chunks, key=lambda each: each.byte_offset):
            if not 0 < chunk.size <= longest or not end <= chunk.byte_offset <= self._file.size - chunk.size:
                raise CorruptCheckpointError(
                    "a chunk of a dataset does not lie in the HDF5 file, shares bytes with another, or is longer than its elements",
                    key=path,
                    expected=f"one byte or more, and at most {longest}, from byte {end} to byte {self._file.size}",
                    found=f"{chunk.size} bytes at byte {chunk.byte_offset}",
                )
            end = chunk.byte_offset + chunk.size
        self._checked.add(path)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except MilepostError as error:
            raise error.with_context(file=self._file.path) from None
        except Exception as error:
            # For damaged files, h5py raises errors of many kinds.
            raise CorruptCheckpointError(
                "h5py cannot read this HDF5 file",
                file=self._file.path,
                found=f"{type(error).__name__}: {error!s:.300}",
                remedy="copy or download the file again; if Keras did not write it, read it with h5py",
            ) from error


def _without_empty(tree: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        below = _without_empty(value) if isinstance(value, dict) else value
        if not isinstance(value, dict) or below:
            kept[name] = below
    return kept
