"""Reads files of Keras' own saving: ``.weights.h5``, ``.h5`` and ``.keras``. `hdf5` reads the format below them.

::

    .weights.h5  :=  <path of an object>/vars/<name>      what save_weights() of Keras 3 writes; the attribute name of vars is the
                                                          object's own name
    .h5          :=  {model_weights/} <layer>/<weight>    what save_weights() and save() of Keras 1 and 2 wrote, and Keras Applications have
                     optimizer_weights/<weight>           the attributes layer_names and weight_names give their order
    .keras       :=  a zip archive with model.weights.h5, not compressed; assets/<path of an object>/vocabulary.txt, a token in each line; and
                     config.json, which is not read
    .weights.json := JSON: {"weight_map": {"/<path of an object>/vars": file name | [file name, ...]}}, beside the .weights.h5 files

A vocabulary is the value ``vocabulary`` below its object. Other assets are files of a program's own layers. The archive has a CRC-32 of each record. That of model.weights.h5 is compared once, before the first tensor is read; the others only when the
whole file is verified.

Names are those of the HDF5 file. `graph` finds the live variables, with the help of `milepost.adapters.keras.own_files`.
Source: Keras 3.15, ``keras/src/saving/saving_lib.py`` and ``keras/src/legacy/saving/legacy_h5_format.py``.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.format.slices import Box, index_of
from milepost.bundle.memory import Array
from milepost.bundle.transfer import read_chunks
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.foreign import zip_content
from milepost.foreign.hdf5.files import MAGIC, Dataset, Hdf5File
from milepost.foreign.stored import Stored
from milepost.foreign.windows import Window
from milepost.foreign.zip_directory import Archive, ZipRecord, read_directory, starts_of
from milepost.storage import ReadableFile

_MODEL: Final = "config.json"
_WEIGHTS: Final = "model.weights."
_HDF5: Final = "model.weights.h5"
_ARCHIVE: Final = "the .keras archive"
ASSETS: Final = "assets/"
"""What the names of assets begin with."""
_VOCABULARY: Final = "vocabulary.txt"
VOCABULARY: Final = "vocabulary"
"""The name of the tokens of a lookup layer, below it."""
_LONGEST_ASSET: Final = 64 << 20
_OF_MODEL: Final = "model_weights"
_OF_OPTIMIZER: Final = "optimizer_weights"
_LAYERS: Final = "layer_names"
_NAMES: Final = "weight_names"
VARIABLES: Final = "vars"
"""The group of the variables of a layer."""
_OWN_NAME: Final = "name"
"""Its attribute with the layer's own name, in files of newer versions of Keras."""


def looks_like(archive: Archive) -> bool:
    """Whether a file, which may be an archive, begins like one that Keras wrote."""
    return _begins_with(archive.file, MAGIC) or (archive.looks_like_one and _is_model(archive))


_ENDS_OF_LINES: Final = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""The characters at which `str.splitlines` divides text."""


class KerasFile:
    """An open file of Keras; see `BoxedFile`.

    Args:
        file: The file, which is closed if it cannot be read.

    Attributes:
        layers: Of a ``.h5`` file, the layers in their order, each with its name and the keys of its weights; otherwise None.
        optimizer: Of a ``.h5`` file, the keys of the variables of the optimizer, in their order.
        vocabularies: Of an archive, the tokens of lookup layers, as text in UTF-8, by the paths of the layers.
        assets: The names of the other assets in it.
    """

    dotted = False
    kind = ""
    library = "Keras"

    def __init__(self, file: ReadableFile) -> None:
        self.path = file.path
        self.paths = [file.path]
        self._file = file
        self.vocabularies: dict[str, Array] = {}
        self.assets: dict[str, tuple[ZipRecord, int]] = {}
        try:
            self._record = None if _begins_with(file, MAGIC) else _weights_of(file)
            self._unchecked = self._record
            self._content = file if self._record is None else Window(file, self._record.offset, self._record.size)
            self._hdf5 = Hdf5File(self._content)
        except MilepostError as error:
            file.close()
            raise error.with_context(file=file.path) from None
        try:
            self.tree = self._hdf5.tree()
            if self._record is not None:
                self._read_assets()
            self.layers = self._layers()
            self.optimizer = self._keys_of(self._hdf5.root, _OF_OPTIMIZER, _OF_OPTIMIZER)
        except MilepostError as error:
            self.close()
            raise error.with_context(file=file.path) from None

    def own_names(self) -> dict[str, str]:
        """The names that layers have themselves, by the paths of the layers in the file, as far as the file has them."""
        names: dict[str, str] = {}
        pending: list[tuple[str, Any]] = [("", self.tree)]
        while pending:
            path, level = pending.pop()
            for name, below in level.items():
                if not isinstance(below, Mapping):
                    continue
                inside = f"{path}/{name}" if path else name
                pending.append((inside, below))
                with suppress(CorruptCheckpointError):  # of a damaged attribute, which no value is
                    if own_name := self._hdf5.text(f"{inside}/{VARIABLES}", _OWN_NAME):
                        names[inside] = own_name
        return names

    def read_into(self, tensor: Stored, destination: Array) -> None:
        self._hdf5.read_into(tensor.place, destination)

    def read_box(self, tensor: Stored, box: Box, destination: Array) -> None:
        self._hdf5.read_into(tensor.place, destination, index_of(box)[:-1])

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        dataset: Dataset = tensor.place
        return None if dataset.offset is None else (self._content, dataset.offset)

    def check(self, tensor: Stored) -> None:
        """Verifies the checksum of an archive. HDF5 verifies those of chunks, if there are any, when it reads them."""
        record = self._unchecked
        if record is None:
            return
        crc = 0
        for chunk in read_chunks(self._file, record.offset, record.size):
            crc = zlib.crc32(chunk, crc)
        if crc != record.crc:
            raise CorruptCheckpointError(
                f"the weights in the .keras archive are damaged, somewhere from byte {record.offset} on: wrong checksum",
                file=self.path,
                expected=f"{record.crc:#010x}",
                found=f"{crc:#010x}",
            )
        self._unchecked = None

    def check_rest(self) -> None:
        """Verifies the checksums of the other records of an archive."""
        record = self._record
        if record is not None:
            zip_content.check_others(self._file, () if self._unchecked else (record.offset,), _ARCHIVE)

    def has_checksum(self, tensor: Stored) -> bool:
        return self._record is not None

    def check_box(self, tensor: Stored, box: Box) -> None:
        """Verifies the same as `check`, since the archive has no checksum of a part."""
        self.check(tensor)

    def close(self) -> None:
        self._hdf5.close()
        self._file.close()

    def _read_assets(self) -> None:
        """Reads the vocabularies in an archive. They are in the tree, too."""
        room = zip_content.TextBudget()
        records = {name: each for name, each in read_directory(self._file).items() if name.startswith(ASSETS)}
        for name, record, start in zip(records, records.values(), starts_of(records.values(), self._file), strict=True):
            path, _, file = name.removeprefix(ASSETS).rpartition("/")
            if file != _VOCABULARY or not path:
                self.assets[name] = record, start
                continue
            data = self._content_of(name, record, start)
            text = data.decode("utf-8", "surrogateescape").rstrip("\n")
            # twice, since each line is text first, and bytes then
            try:
                room.take(record, 2 * (1 + sum(map(text.count, _ENDS_OF_LINES))), 2 * len(data))
            except CorruptCheckpointError as error:
                raise error.with_context(key=name[:200]) from None
            lines = text.splitlines()
            tokens = np.empty(len(lines), object)
            tokens[:] = [line.encode("utf-8", "surrogateescape") for line in lines]
            self.vocabularies[path] = tokens
            _put(self.tree, path.split("/"), tokens)

    def asset(self, name: str) -> bytes:
        """The content of one of the other assets.

        Raises:
            CorruptCheckpointError: It is damaged.
            UnsupportedError: It is longer than 64 MiB, or encrypted.
        """
        return self._content_of(name, *self.assets[name])

    def _content_of(self, name: str, record: ZipRecord, start: int) -> bytes:
        try:
            zip_content.check_readable(record, start, self._file, _ARCHIVE)
            if record.size > _LONGEST_ASSET:
                raise UnsupportedError(
                    "an asset in a .keras archive is too long",
                    expected=f"at most {_LONGEST_ASSET} bytes",
                    found=record.size,
                )
            zip_content.check(self._file, record, start, _ARCHIVE)
            return b"".join(zip_content.content(self._file, record, start, _ARCHIVE))
        except MilepostError as error:
            raise error.with_context(key=name[:200], file=self.path) from None

    def _layers(self) -> list[tuple[str, Sequence[str]]] | None:
        root, above = self._hdf5.root, ""
        if _OF_MODEL in self.tree:
            root, above = root[_OF_MODEL], f"{_OF_MODEL}/"
        names = self._hdf5.texts(root, _LAYERS)
        if names is None:
            return None
        layers = [(name, self._keys_of(root, name, f"{above}{name}")) for name in names]
        return [(name, keys) for name, keys in layers if keys]

    def _keys_of(self, group: Any, name: str, path: str) -> Sequence[str]:
        """The keys of the weights that an attribute of a group lists. The file must hold them."""
        at: Any = self.tree
        for step in path.split("/"):
            at = at.get(step) if isinstance(at, Mapping) else None
        if not isinstance(at, Mapping):
            return ()
        keys = [f"{path}/{weight}" for weight in self._hdf5.texts(group[name], _NAMES) or ()]
        for key in keys:
            if not isinstance(_at(self.tree, key), Stored):
                raise CorruptCheckpointError("the HDF5 file lists a weight that it does not hold", key=key[:200])
        return keys


def _at(tree: Any, key: str) -> Any:
    for step in key.split("/"):
        tree = tree.get(step) if isinstance(tree, Mapping) else None
    return tree


def _put(tree: dict[str, Any], path: Sequence[str], tokens: Array) -> None:
    """Puts a vocabulary into the tree of a file, unless a variable is in the way."""
    for step in path:
        tree = tree.setdefault(step, {})
        if not isinstance(tree, dict):
            return
    tree.setdefault(VOCABULARY, tokens)


def _begins_with(file: ReadableFile, magic: bytes) -> bool:
    return file.size > len(magic) and bytes(file.read(0, len(magic))) == magic


def _is_model(archive: Archive) -> bool:
    try:
        names = archive.records
    except CorruptCheckpointError:
        return False
    return _MODEL in names and any(name.startswith(_WEIGHTS) for name in names)


class WeightsRecord(NamedTuple):
    """Where the weights of a ``.keras`` archive are: the first byte, the number of bytes, and their CRC-32."""

    offset: int
    size: int
    crc: int


def _weights_of(file: ReadableFile) -> WeightsRecord:
    """The weights in a ``.keras`` archive."""
    record: ZipRecord | None = read_directory(file).get(_HDF5)
    if record is None or not record.is_plain:
        raise UnsupportedError(
            "milepost does not read the weights in this .keras archive",
            expected=f"a record {_HDF5} that is not compressed",
            found="a compressed record" if record is not None else "no such record",
            remedy="load it with keras.models.load_model(path), and save the model with milepost",
        )
    (start,) = starts_of([record], file)
    if start + record.size > file.size:
        raise CorruptCheckpointError("the .keras archive is truncated", expected=f"{start + record.size} bytes")
    return WeightsRecord(start, record.size, record.crc)
