"""The tensors of an open checkpoint as rows, and the choice of some of them by name."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from milepost.bundle import BundleReader
from milepost.bundle.legacy import LegacyReader
from milepost.bundle.reader import IndexedReader
from milepost.checkpoint.short_names import key_of
from milepost.collector import collection_paused
from milepost.engine.load import read_object_graph
from milepost.errors import CorruptCheckpointError, KeyNotFoundError, MilepostError
from milepost.foreign import ForeignReader
from milepost.graph.keys import ATTRIBUTES, METADATA, OBJECT_GRAPH, SLOT
from milepost.tensor import DType, TensorSpec

_OF_CHECKPOINTS: Final = (OBJECT_GRAPH, METADATA)
_NONE: Final = type(None).__name__
"""The name of the type of None in the object graph."""
_OF_NONE: Final = TensorSpec(DType.of("bool"), (0,))
"""What is saved for None."""


class Row(NamedTuple):
    """One tensor.

    Attributes:
        key: Its key.
        dtype: Its element type.
        shape: Its shape.
        size: How many bytes it takes in the file, or in memory if the file is one of another library.
        shard: The number of its data file; None if it is in pieces, or in a file of another library.
        pieces: How many pieces it was saved in.
        is_none: Whether it stands for None, which has no tensor.
    """

    key: str
    dtype: DType
    shape: tuple[int, ...]
    size: int
    shard: int | None
    pieces: int = 1
    is_none: bool = False

    @property
    def spec(self) -> str:
        """Element type and shape as text."""
        return "None" if self.is_none else _spec(self.dtype, self.shape)

    def to_dict(self) -> dict[str, Any]:
        """The row for JSON."""
        return {
            "key": self.key,
            "dtype": self.dtype.name,
            "shape": list(self.shape),
            "bytes": self.size,
            "shard": self.shard,
            "pieces": self.pieces,
            "is_none": self.is_none,
        }


@functools.lru_cache(maxsize=4096)
def _spec(dtype: DType, shape: tuple[int, ...]) -> str:
    return str(TensorSpec(dtype, shape))


@collection_paused()
def rows_of(reader: BundleReader, keys: Iterable[str] | None = None) -> list[Row]:
    """Tensors of a checkpoint, by default all, sorted by key. Only the index is read; and the object graph, if it may say that one is None."""
    if keys is None and isinstance(reader, IndexedReader):
        rows = _of_index(reader)
    else:
        rows = [_row_of(reader, key) for key in (sorted(reader.keys()) if keys is None else keys)]
    places = [place for place, row in enumerate(rows) if row.shape == _OF_NONE.shape and row.dtype is _OF_NONE.dtype]
    nones = _nones(reader) if places else ()
    for place in places:
        if rows[place].key in nones:
            rows[place] = rows[place]._replace(is_none=True)
    return rows


def _nones(reader: BundleReader) -> Collection[str]:
    """The keys of the tensors that stand for None."""
    if isinstance(reader, ForeignReader):  # which list no None
        return ()
    try:
        graph = read_object_graph(reader)
    except MilepostError:  # what is damaged is said where it is read
        return ()
    nodes = () if graph is None else graph.nodes
    return {value.key for node in nodes if node.python == _NONE for value in node.values}


def _of_index(reader: IndexedReader) -> list[Row]:
    """The rows of a checkpoint with an index, made of its columns."""
    keys, columns = reader.columns()
    dtypes, shapes = [spec.dtype for spec in columns.specs], [spec.shape for spec in columns.specs]
    which = columns.spec.tolist()
    fields: tuple[Iterable[Any], ...] = (
        keys,
        [dtypes[each] for each in which] if dtypes else repeat(None),
        [shapes[each] for each in which] if shapes else repeat(None),
        columns.size.tolist(),
        columns.shard.tolist(),
        repeat(1),
    )
    rows = list(map(Row, *fields))
    for place in columns.others:
        rows[place] = _row_of(reader, keys[place])
    return rows


def checksums_of(reader: BundleReader) -> dict[str, tuple[int, int]]:
    """By key, the size and the checksum of each tensor that has one for all of it."""
    if not isinstance(reader, IndexedReader):
        return {}
    keys, columns = reader.columns()
    found = dict(zip(keys, zip(columns.size.tolist(), columns.crc.tolist(), strict=True), strict=True))
    for place in columns.others:
        entry = reader.entry(keys[place])
        found[keys[place]] = (0, 0) if entry.slices else (entry.size, entry.crc)
    return {key: place for key, place in found.items() if place[1]}


def row_of(reader: BundleReader, key: str) -> Row:
    """One tensor of a checkpoint."""
    return rows_of(reader, [key])[0]


def _row_of(reader: BundleReader, key: str) -> Row:
    if isinstance(reader, ForeignReader):
        return _foreign(reader, key)
    entry = reader.entry(key)
    size = entry.size
    if entry.slices or isinstance(reader, LegacyReader):  # which have no run of bytes of their own
        size = _text_size(reader, key) if entry.dtype.is_bytes else entry.spec.nbytes
    return Row(key, entry.dtype, entry.shape, size, None if entry.slices else entry.shard, len(entry.slices) or 1)


def _foreign(reader: ForeignReader, key: str) -> Row:
    spec = reader.spec(key)
    # such files hold text as plain values, which are in memory already
    size = _text_size(reader, key) if spec.dtype.is_bytes else spec.nbytes
    return Row(key, spec.dtype, spec.shape, size, None)


def _text_size(reader: BundleReader, key: str) -> int:
    """The bytes of strings, which no index tells. 0 if they are damaged, which is an error where they are read."""
    try:
        return sum(map(len, reader.read(key).reshape(-1)))
    except CorruptCheckpointError:
        return 0


def selected(reader: BundleReader, name: str) -> list[str]:
    """The keys that a user means.

    Args:
        reader: The open checkpoint.
        name: A key, a short name, the path of an object, which means everything below it, or a pattern with ``*``, ``?`` or ``[``.

    Raises:
        KeyNotFoundError: There is no such tensor.
    """
    try:
        key = key_of(reader, name)
        if key in reader:
            return [key]
    except KeyNotFoundError:
        pass  # the name of several: all below it
    keys = sorted(reader.keys())
    below = [key for key in keys if key.startswith((name.rstrip("/") + "/", name.rstrip(".") + "."))]
    if not below and re.search(r"[*?[]", name):
        fits = re.compile(fnmatch.translate(name)).match
        below = [key for key in keys if fits(key) or fits(key.partition(ATTRIBUTES)[0])]
    if not below:
        reader.spec(name)  # raises an error that names similar keys
    return below


def one_selected(reader: BundleReader, name: str) -> str:
    """The key of the one tensor that a user means.

    Raises:
        KeyNotFoundError: There is none, or there are several.
    """
    key = key_of(reader, name)
    reader.spec(key)
    return key


def is_of_program(key: str) -> bool:
    """Whether a tensor is a value of the program that saved, and not the object graph or the metadata.

    Example:
        >>> is_of_program("v/.ATTRIBUTES/VARIABLE_VALUE"), is_of_program("_CHECKPOINTABLE_OBJECT_GRAPH")
        (True, False)
    """
    return key not in _OF_CHECKPOINTS


def steps_of(key: str) -> Sequence[str]:
    """The parts of a key, for a tree: names of edges, and what follows them.

    Example:
        >>> steps_of("net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE")
        ['net', 'l1', 'kernel']
        >>> steps_of("w/.OPTIMIZER_SLOT/opt/m/.ATTRIBUTES/VARIABLE_VALUE")
        ['w', '.OPTIMIZER_SLOT/opt/m']
        >>> steps_of("layers.0.weight")
        ['layers', '0', 'weight']
    """
    path, marker, local = key.partition(ATTRIBUTES)
    rest = [] if not marker or local == "VARIABLE_VALUE" else [f".ATTRIBUTES/{local}"]
    path, slot, tail = path.partition(SLOT)
    separators = r"/" if marker else r"[/.]"
    return [*re.split(separators, path), *([f".OPTIMIZER_SLOT/{tail}"] if slot else []), *rest]
