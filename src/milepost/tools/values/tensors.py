"""The tensors of an open checkpoint as rows, and the choice of some of them by name."""

from __future__ import annotations

import fnmatch
import functools
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.catalogue import UNKNOWN, Catalogue
from milepost.checkpoint.short_names import key_of, name_of
from milepost.collector import collection_paused
from milepost.errors import CorruptCheckpointError, KeyNotFoundError
from milepost.graph.keys import ATTRIBUTES, FILES, SLOT, VARIABLE_VALUE, unescape
from milepost.graph.plain.values import SHOWN_NONE, SPEC_OF_NONE
from milepost.restoring.load import nones_of
from milepost.tensor import DType, TensorSpec
from milepost.tools.names import typed


class Row(NamedTuple):
    """One tensor.

    Attributes:
        key: Its key.
        dtype: Its element type.
        shape: Its shape.
        size: How many bytes it takes in the file, or in memory if the file is of another format.
        shard: The number of its data file; None if it is in pieces, or in a file of another format.
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
        return SHOWN_NONE if self.is_none else _spec(self.dtype, self.shape)

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


class Tensors:
    """All tensors of a checkpoint, sorted by key, in columns: objects for hundreds of thousands of tensors take time and memory.

    Attributes:
        keys: Their keys.
        specs: Every element type and shape that occurs.
        spec: For each tensor, which of ``specs`` is its own.
        size: As in `Row`.
        shard: As in `Row`; -1 for None.
        pieces: As in `Row`, for those with more than one, by position.
        catalogue: What the index says, in the same order.
        none: The number of None in ``specs``; -1 if no tensor stands for it.
        texts: Each of ``specs`` as text.

    Args:
        reader: The open checkpoint. Only its index is read.
        with_files: Whether the files that were saved with it are among its tensors.
    """

    def __init__(self, reader: BundleReader, *, with_files: bool = False) -> None:
        self.specs: list[TensorSpec] = []
        self._numbers: dict[TensorSpec, int] = {}
        self._dtypes: list[DType] = []
        self._shapes: list[tuple[int, ...]] = []
        catalogue = reader.catalogue()
        if reader.origin.is_checkpoint and not with_files:
            catalogue = _without_files(catalogue)
        self.catalogue = catalogue
        self.keys = catalogue.keys
        self.spec = np.array([*map(self._number, catalogue.specs)], np.int64)[catalogue.spec]
        self.size = catalogue.size.copy()
        for position in np.flatnonzero(catalogue.size == UNKNOWN).tolist():
            self.size[position] = _text_size(reader, self.keys[position])
        self.shard = catalogue.file if catalogue.is_masked else np.full(len(self.keys), UNKNOWN)
        self.pieces = catalogue.pieces
        self.none = -1
        if SPEC_OF_NONE in self._numbers:
            self._tell_none(nones_of(reader))
        self.texts = [SHOWN_NONE if number == self.none else str(spec) for number, spec in enumerate(self.specs)]

    def _tell_none(self, keys: Collection[str]) -> None:
        """Gives the tensors that stand for None a number of their own in `specs`."""
        positions = [
            position
            for position in np.flatnonzero(self.spec == self._numbers[SPEC_OF_NONE]).tolist()
            if self.keys[position] in keys
        ]
        if positions:
            self.none = len(self.specs)
            self.specs.append(SPEC_OF_NONE)
            self._dtypes.append(SPEC_OF_NONE.dtype)
            self._shapes.append(SPEC_OF_NONE.shape)
            self.spec[positions] = self.none

    def _number(self, spec: TensorSpec) -> int:
        number = self._numbers.setdefault(spec, len(self.specs))
        if number == len(self.specs):
            self.specs.append(spec)
            self._dtypes.append(spec.dtype)
            self._shapes.append(spec.shape)
        return number

    def row(self, place: int) -> Row:
        """One of them."""
        return next(self.rows([place]))

    def rows(self, places: Iterable[int] | None = None) -> Iterator[Row]:
        """Some of them, or all."""
        wanted = list(range(len(self.keys)) if places is None else places)
        at = np.array(wanted, np.int64)
        specs = self.spec[at].tolist()
        fields: tuple[Iterable[Any], ...] = (
            map(self.keys.__getitem__, wanted),
            map(self._dtypes.__getitem__, specs),
            map(self._shapes.__getitem__, specs),
            self.size[at].tolist(),
            [shard if shard >= 0 else None for shard in self.shard[at].tolist()],
            [self.pieces.get(position, 1) for position in wanted] if self.pieces else repeat(1),
            [spec == self.none for spec in specs] if self.none >= 0 else repeat(False),
        )
        return map(Row, *fields)


@collection_paused()
def rows_of(reader: BundleReader, keys: Iterable[str] | None = None) -> list[Row]:
    """Tensors of a checkpoint, by default all but files, sorted by key. Only the index is read; and the object graph, if it may say that one is None."""
    tensors = Tensors(reader, with_files=keys is not None)
    if keys is None:
        return list(tensors.rows())
    positions = {key: position for position, key in enumerate(tensors.keys)}
    for key in (wanted := [*keys]):
        if key not in positions:
            reader.spec(key)  # raises an error that names similar keys
    return list(tensors.rows(map(positions.__getitem__, wanted)))


def row_of(reader: BundleReader, key: str) -> Row:
    """One tensor of a checkpoint."""
    return rows_of(reader, [key])[0]


def _without_files(catalogue: Catalogue) -> Catalogue:
    """The tensors of a checkpoint without the files that were saved with it, whose keys follow each other."""
    start = bisect_left(catalogue.keys, FILES)
    count = bisect_left(catalogue.keys, FILES[:-1] + chr(ord(FILES[-1]) + 1)) - start
    if not count:
        return catalogue
    pieces = {position - count * (position > start): each for position, each in catalogue.pieces.items()}
    kept = np.delete(np.arange(len(catalogue.keys)), slice(start, start + count))
    return catalogue.take(kept)._replace(pieces=pieces)


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
        name: A key, a short name, the path of an object, which means everything below it, or a pattern with ``*``, ``?`` or ``[``. Each may be
            typed as it was printed.

    Raises:
        KeyNotFoundError: There is no such tensor.
    """
    name = typed(name, reader.keys())
    try:
        key = key_of(reader, name)
        if key in reader:
            return [key]
    except KeyNotFoundError:
        pass  # the name of several: all below it
    keys = sorted(reader.keys())
    above = name.rstrip("/") + "/", name.rstrip(".") + "."
    below = [key for key in keys if key.startswith(above)] or [key for key in keys if name_of(key).startswith(above[0])]
    if not below and re.search(r"[*?[]", name):
        fits = re.compile(fnmatch.translate(name)).match
        below = [key for key in keys if fits(key) or fits(key.partition(ATTRIBUTES)[0]) or fits(name_of(key))]
    if not below:
        reader.spec(name)  # raises an error that names similar keys
    return below


def one_selected(reader: BundleReader, name: str) -> str:
    """The key of the one tensor that a user means, who may have typed its name as it was printed.

    Raises:
        KeyNotFoundError: There is none, or there are several.
    """
    key = key_of(reader, typed(name, reader.keys()))
    reader.spec(key)
    return key


def steps_of(key: str) -> Sequence[str]:
    """The parts of a key, for a tree: names of edges, and what follows them.

    Example:
        >>> steps_of("net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE")
        ['net', 'l1', 'kernel']
        >>> steps_of("w/.OPTIMIZER_SLOT/opt/m/.ATTRIBUTES/VARIABLE_VALUE")
        ['w', '.OPTIMIZER_SLOT/opt/m']
        >>> steps_of("layers.0.weight")
        ['layers', '0', 'weight']
        >>> steps_of("net/a.Sb/.ATTRIBUTES/VARIABLE_VALUE")
        ['net', 'a/b']
    """
    path, marker, local = key.partition(ATTRIBUTES)
    if "." not in path and (not marker or local == VARIABLE_VALUE):
        return path.split("/")  # what most keys are: nothing is escaped, and no slot has such a path
    rest = [] if not marker or local == VARIABLE_VALUE else [f".ATTRIBUTES/{local}"]
    path, slot, tail = path.partition(SLOT)
    names = map(unescape, path.split("/")) if marker else path.replace("/", ".").split(".")
    return [*names, *([f".OPTIMIZER_SLOT/{tail}"] if slot else []), *rest]
