"""Reads files of `torch.save` before PyTorch 1.6, or with ``_use_new_zipfile_serialization=False``.

::

    file    := magic number  protocol  machine  object  keys of storages  {storage}      the first five are each pickled by itself
    storage := elements:i64  data             one for each key, in the byte order of the machine

Source: PyTorch 2.13, ``torch/serialization.py``.
"""

from __future__ import annotations

import reprlib
import sys
from typing import Any, Final, Literal

from milepost.bundle.memory import Array
from milepost.errors import CorruptCheckpointError, MilepostError
from milepost.foreign.pytorch import rebuilt
from milepost.foreign.pytorch.pickled import PickledData
from milepost.foreign.pytorch.storages import StorageRecord, TorchStorages
from milepost.foreign.pytorch.tensors import TorchStorage, element_size, storage_of
from milepost.foreign.stored import Stored
from milepost.storage import ReadableFile

_MAGIC: Final = (b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", f"{0x1950A86A20F9469CFC6C}L\n.".encode())
"""The magic number, as later protocols and as the first two write it. Later protocols have a few more bytes before it."""
_BEFORE: Final = 12
_PROTOCOL: Final = 1001
_COUNT: Final = 8
_FIRST: Final = 1 << 20
"""How many bytes are read first; nearly always they include all pickled data."""
_MOST: Final = 1 << 30


def looks_like(file: ReadableFile) -> bool:
    """Whether a file begins with the magic number."""
    start = bytes(file.read(0, min(file.size, _BEFORE + max(map(len, _MAGIC)))))
    if len(start) > 2 and (b"\x80\x02" + _MAGIC[0]).startswith(start):
        return True  # it is cut off
    return start[:1] in (b"\x80", b"L") and any(0 <= start.find(magic) <= _BEFORE for magic in _MAGIC)


class LegacyTorchFile:
    """An open PyTorch file of the old format; see `ForeignFile`."""

    dotted = True
    kind = "torch"
    library = "PyTorch"

    def __init__(self, file: ReadableFile) -> None:
        self.path = file.path
        self.paths = [file.path]
        self._file = file
        self._seen: dict[str, TorchStorage] = {}
        try:
            self._read_all()
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None

    def read_into(self, tensor: Stored, destination: Array) -> None:
        self._storages.read_into(tensor, destination)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return self._storages.extent(tensor)

    def check(self, tensor: Stored) -> None:
        """Does nothing: the positions were checked when the file was opened, and the format has no checksums."""

    def has_checksum(self, tensor: Stored) -> bool:
        return False

    def close(self) -> None:
        self._file.close()

    def _read_all(self) -> None:
        size = _FIRST
        while True:
            data = self._file.read(0, min(size, self._file.size))
            stream = PickledData(data, rebuilt.meaning, rebuilt.call, rebuilt.build, self._storage)
            try:
                self._read(stream)
                return
            except CorruptCheckpointError:
                if not stream.ended_early or size >= min(self._file.size, _MOST):
                    raise
                size *= 16

    def _read(self, stream: PickledData) -> None:
        self._seen.clear()
        stream.read()
        protocol, machine = stream.read(), stream.read()
        if protocol != _PROTOCOL or not isinstance(machine, dict):
            raise CorruptCheckpointError(
                "this is an unknown version of PyTorch's format", expected=_PROTOCOL, found=reprlib.repr(protocol)
            )
        order: Literal["little", "big"] = "little" if machine.get("little_endian", True) else "big"
        self._storages = TorchStorages(self._file, swapped=order != sys.byteorder)
        self.tree: Any = stream.read()
        keys = stream.read()
        if not isinstance(keys, list):
            raise CorruptCheckpointError(
                "the PyTorch file does not say which storages follow", found=f"an object of type {type(keys).__name__}"
            )
        position = stream.position
        for key in keys:
            storage = self._seen.get(key) if isinstance(key, str) else None
            if storage is None or position + _COUNT > self._file.size:
                raise CorruptCheckpointError(
                    f"the storage {reprlib.repr(key)} of the PyTorch file is missing or unknown"
                )
            position += _COUNT
            count = int.from_bytes(self._file.read(position - _COUNT, _COUNT), order, signed=True)
            nbytes = count * element_size(storage.dtype)
            if count < 0 or nbytes != storage.nbytes:
                raise CorruptCheckpointError(
                    f"the storage {reprlib.repr(key)} has a different length than its tensors need",
                    expected=f"{storage.nbytes} bytes",
                    found=f"{count} elements",
                )
            self._storages.add(storage, StorageRecord(position, nbytes))
            position += nbytes
        for key, storage in self._seen.items():
            if key not in self._storages.records:
                self._storages.add(storage, None)

    def _storage(self, identity: Any) -> Any:
        kind, cls, key, *rest = identity
        if kind == "module":  # a class, with its source code
            return cls
        _, count, view = rest
        if kind != "storage":
            raise ValueError("no storage")
        storage = storage_of(cls, key, count)
        self._seen[key] = storage
        if view is not None:
            _, first, length = view
            return storage.part(first, length)
        return storage
