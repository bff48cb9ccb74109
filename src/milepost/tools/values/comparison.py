"""Compares two checkpoints: which tensors each has, their element types and shapes, and their values.

Everything is in columns, one number for each pair of tensors, since checkpoints may have hundreds of thousands.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.coding.varints import Column
from milepost.conversion.chunks import chunks_of, together
from milepost.conversion.names import NewNames
from milepost.engine.translation import AS_SAVED, Translation
from milepost.errors import MilepostError, UnsupportedError
from milepost.graph.keys import ATTRIBUTES, OBJECT_GRAPH, is_value, short_name, unescape
from milepost.graph.plain.values import SHOWN_NONE
from milepost.restoring.load import read_object_graph
from milepost.tools.values.blocks import BlockMemory, blocks_of
from milepost.tools.values.differences import Differences
from milepost.tools.values.small_tensors import SmallTensors, compare_small
from milepost.tools.values.statistics import TensorDifference, is_numeric
from milepost.tools.values.tensors import Row, Tensors

Kind = Literal["added", "removed", "reshaped", "retyped", "changed"]
KINDS: Final[tuple[Kind, ...]] = ("removed", "added", "reshaped", "retyped", "changed")


Places = Column
"""The positions of some tensors, or of some pairs."""


class NotArrays(NamedTuple):
    """How two checkpoints differ in what no array can hold.

    Attributes:
        removed: What only the first has, by name.
        added: What only the second has.
        changed: What is something else in the second: what it is in each.
        same: How many are the same in both.
    """

    removed: Mapping[str, str]
    added: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]
    same: int = 0

    @classmethod
    def of(cls, first: Mapping[str, str], second: Mapping[str, str]) -> NotArrays:
        """Compares what two checkpoints have.

        Example:
            >>> NotArrays.of({"a": "None", "b": "[]", "c": "{}"}, {"b": "[]", "c": "[]"})
            NotArrays(removed={'a': 'None'}, added={}, changed={'c': ('{}', '[]')}, same=1)
        """
        both = first.keys() & second.keys()
        changed = {name: (old, second[name]) for name, old in first.items() if name in both and old != second[name]}
        removed = {name: what for name, what in first.items() if name not in both}
        added = {name: what for name, what in second.items() if name not in both}
        return cls(removed, added, changed, len(both) - len(changed))

    @property
    def differ(self) -> bool:
        """Whether there is any difference."""
        return bool(self.removed or self.added or self.changed)

    def to_dict(self) -> dict[str, Any]:
        """The difference for JSON."""
        return {"removed": [*self.removed], "added": [*self.added], "changed": [*self.changed]}


class Change(NamedTuple):
    """One difference between two checkpoints.

    Attributes:
        kind: What differs.
        key: The key, that of the first checkpoint if it has the tensor.
        before: The tensor of the first checkpoint, or None.
        after: That of the second one, or None.
        difference: How much the values differ, if they were compared and are numbers.
    """

    kind: Kind
    key: str
    before: Row | None = None
    after: Row | None = None
    difference: TensorDifference | None = None

    def to_dict(self) -> dict[str, Any]:
        """The difference for JSON."""
        fields: dict[str, Any] = {"change": self.kind, "key": self.key}
        for name, row in (("before", self.before), ("after", self.after)):
            fields[name] = None if row is None else {"key": row.key, "dtype": row.dtype.name, "shape": list(row.shape)}
        return fields | (self.difference.to_dict() if self.difference is not None else {})


class Comparison:
    """A comparison of two open checkpoints.

    A file of another library is compared with a checkpoint by the paths of values, in which ``.`` and ``/`` are the same. The object graph is
    not compared, since it is the text of names that are compared anyway.

    Args:
        first: One checkpoint.
        second: The other one.
        translation: Gives the tensors of the first other names for the comparison.

    Raises:
        UnsupportedError: Two tensors of the first would have the same name.

    Attributes:
        readers: The two checkpoints.
        sides: The tensors of each.
        pairs: The tensors that both have: their positions in the first, and in the second.
        removed: The positions of those that only the first has.
        added: The positions of those that only the second has.
        has_other_shape: Which pairs have two shapes.
        has_other_type: Which have two element types.
        differences: How much the values of each pair differ, if they were compared and are numbers.
        is_changed: Which pairs have other values, as far as they were compared.
        not_arrays: How they differ in what no array can hold.
    """

    def __init__(self, first: BundleReader, second: BundleReader, translation: Translation = AS_SAVED) -> None:
        self.readers = first, second
        is_mixed = first.origin.is_checkpoint != second.origin.is_checkpoint
        self.sides = Tensors(first), Tensors(second)
        not_arrays, others = (_not_arrays_of(reader, with_graph=is_mixed) for reader in self.readers)
        if not translation.renames and not is_mixed and self.sides[0].keys == self.sides[1].keys:
            names = self.sides[0].keys
            graph = bisect_left(names, OBJECT_GRAPH)
            old = new = np.delete(
                np.arange(len(names)), slice(graph, graph + (names[graph : graph + 1] == [OBJECT_GRAPH]))
            )
            self.added = old[:0]
        else:
            keys = self.sides[0].keys
            if translation.renames:
                renamed = _renamed([*keys, *not_arrays], first, translation)
                keys, not_arrays = (
                    renamed[: len(keys)],
                    dict(zip(renamed[len(keys) :], not_arrays.values(), strict=True)),
                )
            as_path = is_mixed or translation.renames  # a new name may be typed with either separator
            before = _places_by_name(keys, first, as_path=as_path)
            after = _places_by_name(self.sides[1].keys, second, as_path=as_path)
            old = np.array([*before.values()], np.int64)
            new = np.array([after.get(name, -1) for name in before], np.int64)
            self.added = np.setdiff1d(np.array([*after.values()], np.int64), new)
        self.pairs = old[new >= 0], new[new >= 0]
        self.removed = np.sort(old[new < 0])
        if is_mixed:
            not_arrays, others = self._by_path(not_arrays, others, keys)
        self.not_arrays = NotArrays.of(not_arrays, others)
        self.has_other_shape = self._is_other(lambda side: [spec.shape for spec in side.specs])
        self.has_other_type = self._is_other(
            lambda side: [None if number == side.none else spec.dtype for number, spec in enumerate(side.specs)]
        )
        self.differences = Differences(len(self.pairs[0]))
        self.is_changed = np.zeros(len(self.pairs[0]), bool)

    def _by_path(
        self, not_arrays: Mapping[str, str], others: Mapping[str, str], keys: Sequence[str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """What no array can hold of a checkpoint and a file of another library, by path.

        A checkpoint has a tensor for None. If only it has one of this name, and the file has something else there, such as None, the tensor is
        taken from what is removed or added.

        Args:
            not_arrays: That of the first.
            others: That of the second.
            keys: The keys of the first, with other names if it has got some.
        """
        escapes = [reader.origin.is_checkpoint for reader in self.readers]
        by_path = [
            {_path_of(key, escapes=escaped): what for key, what in by_key.items()}
            for by_key, escaped in zip((not_arrays, others), escapes, strict=True)
        ]
        alone = [self.removed, self.added]
        for number, side in enumerate(self.sides):
            names = side.keys if number else keys
            nones = alone[number][side.spec[alone[number]] == side.none] if side.none >= 0 else ()
            paths = {position: _path_of(names[position], escapes=escapes[number]) for position in nones}
            moved = [position for position, path in paths.items() if path in by_path[1 - number]]
            by_path[number] |= {paths[position]: SHOWN_NONE for position in moved}
            alone[number] = np.setdiff1d(alone[number], moved)
        self.removed, self.added = alone
        return by_path[0], by_path[1]

    def _is_other(self, fields: Callable[[Tensors], Sequence[Any]]) -> Any:
        """Which pairs differ in a field that each of the specs of a side has."""
        numbers: dict[Any, int] = {}
        first, second = (
            np.array([numbers.setdefault(field, len(numbers)) for field in fields(side)], np.int64)[
                side.spec[positions]
            ]
            for side, positions in zip(self.sides, self.pairs, strict=True)
        )
        return first != second

    def to_read(self, *, trust_checksums: bool = False) -> Places:
        """The pairs whose values must be read to compare them: those of one shape.

        Args:
            trust_checksums: Whether tensors of one element type, size and CRC-32C count as equal.
        """
        wanted = ~self.has_other_shape
        if trust_checksums:
            (a, b), (old, new) = self.sides, self.pairs
            first, second = a.catalogue, b.catalogue
            is_equal = (first.checksum[old] == second.checksum[new]) & (a.size[old] == b.size[new])
            is_equal &= (first.checksum[old] > 0) & first.is_masked & second.is_masked
            wanted &= ~is_equal | self.has_other_type
        return np.flatnonzero(wanted)

    def sizes(self, pairs: Places) -> int:
        """The bytes of some pairs, of both checkpoints."""
        return sum(
            int(side.size[positions[pairs]].sum()) for side, positions in zip(self.sides, self.pairs, strict=True)
        )

    def read(self, pairs: Places) -> None:
        """Reads values, and notes which differ, and how much.

        Args:
            pairs: What to compare.

        Raises:
            CorruptCheckpointError: Some bytes are damaged.
        """
        first, second = (SmallTensors(reader, side) for reader, side in zip(self.readers, self.sides, strict=True))
        old, new = (positions[pairs] for positions in self.pairs)
        is_small = first.contains(old) & second.contains(new)
        small = pairs[is_small]
        for batch, batch_differences in compare_small(first, second, old[is_small], new[is_small]):
            self.differences.put(small[batch], batch_differences)
            self.is_changed[small[batch]] = batch_differences.unequal > 0
        others = pairs[~is_small]
        known: list[int] = []
        differences: list[TensorDifference] = []
        rows = (side.rows(positions[others].tolist()) for side, positions in zip(self.sides, self.pairs, strict=True))
        for pair, a, b in zip(others.tolist(), *rows, strict=True):
            difference = self._difference(a, b)
            if difference is not None:
                self.is_changed[pair] = difference.unequal > 0
                if is_numeric(a.dtype):
                    known.append(pair)
                    differences.append(difference)
        if known:
            self.differences.put(known, Differences.of(differences))

    def rows(self, pair: int) -> tuple[Row, Row]:
        """The two tensors of a pair."""
        first, second = (side.row(int(positions[pair])) for side, positions in zip(self.sides, self.pairs, strict=True))
        return first, second

    def by_kind(self) -> dict[Kind, Places]:
        """What differs, sorted by key: of removed and added tensors their positions, of all others the pairs."""
        reshaped, retyped = self.has_other_shape, self.has_other_type & ~self.has_other_shape
        changed = self.is_changed & ~reshaped & ~retyped
        pairs: list[tuple[Kind, Any]] = [("reshaped", reshaped), ("retyped", retyped), ("changed", changed)]
        changes_by_kind: dict[Kind, Places] = {"removed": self.removed, "added": self.added}
        for kind, which in pairs:
            differing_pairs = np.flatnonzero(which)
            # the keys are sorted, so their order is that of their positions
            changes_by_kind[kind] = differing_pairs[np.argsort(self.pairs[0][differing_pairs], kind="stable")]
        return changes_by_kind

    def changes(self) -> Iterator[Change]:
        """What differs, by kind and key."""
        for kind, positions in self.by_kind().items():
            if kind == "removed":
                yield from (Change(kind, row.key, row) for row in self.sides[0].rows(positions.tolist()))
            elif kind == "added":
                yield from (Change(kind, row.key, None, row) for row in self.sides[1].rows(positions.tolist()))
            else:
                old, new = (side.rows(at[positions].tolist()) for side, at in zip(self.sides, self.pairs, strict=True))
                differences = self.differences.take(positions).each()
                yield from (
                    Change(kind, *each) for each in zip(self._keys(positions), old, new, differences, strict=True)
                )

    def _keys(self, pairs: Places) -> Iterable[str]:
        """The keys of some pairs."""
        return map(self.sides[0].keys.__getitem__, self.pairs[0][pairs].tolist())

    def _difference(self, old: Row, new: Row) -> TensorDifference | None:
        """How much two tensors of one shape differ. None if that cannot be said, since one is text and the other is not."""
        first, second = self.readers
        if is_numeric(old.dtype) != is_numeric(new.dtype):
            return None
        difference = TensorDifference()
        if not is_numeric(old.dtype):
            a, b = first.read(old.key), second.read(new.key)
            difference.count, difference.unequal = a.size, int(np.sum(np.asarray(a != b, bool)))
            return difference
        rooms = BlockMemory(), BlockMemory()
        for chunks in together([chunks_of(first, old.key), chunks_of(second, new.key)]):
            for first_block, second_block in zip(*map(blocks_of, chunks, rooms), strict=True):
                difference.add(first_block, second_block)
        return difference


def by_name(rows: Sequence[Row], reader: BundleReader, *, as_path: bool) -> dict[str, Row]:
    """The tensors of a checkpoint by the names under which others are compared with them. The object graph is none of them.

    Args:
        rows: All tensors of the checkpoint.
        reader: The open checkpoint.
        as_path: Whether ``.`` and ``/`` are the same, as they must be where a file of another library is compared with a checkpoint.
    """
    positions = _places_by_name([row.key for row in rows], reader, as_path=as_path)
    return {name: rows[position] for name, position in positions.items()}


def _places_by_name(keys: Sequence[str], reader: BundleReader, *, as_path: bool) -> dict[str, int]:
    """The positions of tensors by name. Arguments are those of `by_name`.

    Args:
        keys: The keys of the checkpoint.
        reader: The checkpoint.
        as_path: As for `by_name`.
    """
    names = [_path_of(key, escapes=reader.origin.is_checkpoint) for key in keys] if as_path else keys
    positions = dict(zip(names, range(len(keys)), strict=True))
    if len(positions) < len(
        keys
    ):  # of "a.b" and "a/b", the one that is its own path has that name, and the other keeps its key
        positions = {}
        for position in sorted(range(len(keys)), key=lambda position: names[position] != keys[position]):
            positions[keys[position] if names[position] in positions else names[position]] = position
    positions.pop(OBJECT_GRAPH, None)
    return positions


def _not_arrays_of(reader: BundleReader, *, with_graph: bool) -> Mapping[str, str]:
    """What a checkpoint or a file of another library has that no array can hold, by key.

    Args:
        reader: The open checkpoint.
        with_graph: Whether to look at the object graph of a checkpoint, which takes time.
    """
    graph = None
    if with_graph:
        with suppress(MilepostError):  # what is damaged is said where it is read
            graph = read_object_graph(reader)
    return reader.catalogue().not_arrays if graph is None else graph.empty_containers()


def _renamed(keys: Sequence[str], reader: BundleReader, translation: Translation) -> list[str]:
    """The keys of a checkpoint with other names. Names that have named nothing are warned of.

    Raises:
        UnsupportedError: Two would be the same.
    """
    names = NewNames(translation, dotted=reader.origin.dotted)
    taken: dict[str, str] = {}
    for key in keys:
        path, marker, local = key.partition(ATTRIBUTES)
        new = key if not is_value(key) else f"{names(path)}{marker}{local}"
        other = taken.setdefault(new, key)
        if other != key:
            raise UnsupportedError(
                "two tensors of A would have the same name",
                key=key,
                file=reader.prefix,
                found=f"the same new name as {other}",
                remedy="give one of them another name with --rename",
            )
    names.warn_of_unused(reader)
    return [*taken]


def _path_of(key: str, *, escapes: bool) -> str:
    """The name of a tensor with ``/`` for ``.``.

    Args:
        key: Its key.
        escapes: Whether dots in names are escaped, as in checkpoints.
    """
    path, marker, local = short_name(key).partition(ATTRIBUTES)
    if escapes:
        path, local = "/".join(map(unescape, path.split("/"))), unescape(local)
    return f"{path}{'/' if marker else ''}{local}".replace(".", "/")
