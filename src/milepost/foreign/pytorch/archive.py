"""Reads files of `torch.save`: zip archives without compression, with one record for each storage.

::

    <name>/data.pkl      the object, pickled; storages in it are named ("storage", class, key, device, elements)
    <name>/data/<key>    the bytes of a storage
    <name>/byteorder     "little" or "big"

Source: PyTorch 2.13, ``torch/serialization.py``.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from operator import methodcaller
from typing import Any, Final

from milepost.bundle.catalogue import Catalogue
from milepost.bundle.memory import Array
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign import zip_content
from milepost.foreign.kinds import first_record
from milepost.foreign.opaque import Name, Opaque
from milepost.foreign.pytorch import rebuilt
from milepost.foreign.pytorch.pickled import PickledData
from milepost.foreign.pytorch.storages import UNKNOWN, StorageRecord, TorchStorages, wrong_checksum
from milepost.foreign.pytorch.tensors import storage_of
from milepost.foreign.stored import Stored
from milepost.foreign.zip_directory import Archive, ZipRecord, starts_of
from milepost.storage import ReadableFile

_DATA: Final = "data.pkl"
_OTHERS: Final = (".npy", ".json", ".xml", ".txt", ".md")
"""How the name of the first record ends in archives of other programs."""


def looks_like(archive: Archive) -> bool:
    """Whether a file is an archive with pickled data in it, or begins like one and is cut off."""
    if not archive.looks_like_one:
        return False
    try:
        names = archive.records
    except CorruptCheckpointError:
        return not first_record(archive.file).endswith(_OTHERS)
    return any(map(methodcaller("endswith", f"/{_DATA}"), names))


class TorchArchive:
    """An open PyTorch file; see `ForeignFile`.

    Args:
        archive: The file, which is closed if it cannot be read.
        label: What the keys of its storages begin with, to tell them from those of other archives.
    """

    dotted = True
    kind = "torch"
    library = "PyTorch"

    def __init__(self, archive: Archive, label: str = "") -> None:
        file = archive.file
        self.path = file.path
        self.paths = [file.path]
        self._file = file
        self._label = label
        try:
            entries = self._entries = archive.records
            record = next((name for name in entries if name.endswith(f"/{_DATA}")), None)
            if record is None:
                raise CorruptCheckpointError("the archive holds no object of torch.save", expected=f"a record {_DATA}")
            folder = record.removesuffix(_DATA)
            if f"{folder}constants.pkl" in entries:
                raise UnsupportedError(
                    "this is a TorchScript program, and not the state of a model",
                    expected="a file of torch.save",
                    found="the record constants.pkl, which programs have",
                    remedy="load it with torch.jit.load and save its state_dict()",
                )
            self._records = _plain(entries, file)
            order = self._read(f"{folder}byteorder") if f"{folder}byteorder" in entries else b"little"
            self._storages = TorchStorages(file, swapped=order.decode(errors="replace") != sys.byteorder)
            self._folder = f"{folder}data/"
            data = self._read(f"{folder}{_DATA}")
            self.tree = PickledData(data, rebuilt.meaning, rebuilt.call, rebuilt.build, self._storage).read()
            del self._entries, self._records  # what the tensors need is in the storages
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None

    @property
    def has_tensors(self) -> bool:
        """Whether the file holds tensors, or parts of objects that may be tensors."""
        return bool(self._storages.records)

    def read_into(self, tensor: Stored, destination: Array) -> None:
        self._storages.read_into(tensor, destination)

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        return self._storages.extent(tensor)

    def catalogue(self, tensors: Mapping[str, Stored]) -> Catalogue:
        return self._storages.catalogue(tensors)

    def check(self, tensor: Stored) -> None:
        self._storages.check(tensor)

    def check_rest(self) -> None:
        """Verifies the checksums of the records that hold no storage of a tensor, if PyTorch has written checksums."""
        zip_content.check_others(self._file, self._storages.done, "the PyTorch file", UNKNOWN)

    def has_checksum(self, tensor: Stored) -> bool:
        return self._storages.has_checksum(tensor)

    def close(self) -> None:
        self._file.close()

    def _storage(self, identity: Any) -> Any:
        kind, cls, key, _, count = identity
        if kind != "storage":
            raise ValueError("no storage")
        try:
            storage = storage_of(cls, f"{self._label}{key}" if isinstance(key, str) else key, count)
        except UnsupportedError:
            if isinstance(cls, Name):
                return Opaque(cls, sealed=True)
            raise
        self._storages.add(storage, self._record(f"{self._folder}{key}"))
        return storage

    def _record(self, name: str) -> StorageRecord | None:
        """A record of the archive; None if there is none of this name.

        Raises:
            UnsupportedError: It is compressed or encrypted.
        """
        record = self._records.get(name)
        if record is None and name in self._entries:
            raise UnsupportedError(
                "a record of this archive is compressed or encrypted, which PyTorch never does",
                expected="a plain record",
                found=f"{name!r:.80}",
                remedy="use the file that torch.save wrote, not a repacked copy",
            )
        return record

    def _read(self, name: str) -> bytes:
        """Reads a whole record, and verifies its checksum."""
        record = self._record(name)
        assert record is not None, "only existing records are read"
        data = self._file.read(record.offset, record.size)
        if record.crc not in (UNKNOWN, crc := zlib.crc32(data)):
            raise wrong_checksum(record, crc)
        return data


def _plain(entries: Mapping[str, ZipRecord], file: ReadableFile) -> dict[str, StorageRecord]:
    """The records that are neither compressed nor encrypted, with the positions of their first bytes."""
    plain = {name: entry for name, entry in entries.items() if entry.is_plain}
    starts = starts_of(plain.values(), file)
    return {
        name: StorageRecord(start, entry.size, entry.crc)
        for (name, entry), start in zip(plain.items(), starts, strict=True)
    }
