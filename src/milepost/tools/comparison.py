"""Compares two checkpoints: which tensors each has, their element types and shapes, and their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.checkpoint.short_names import short_name
from milepost.conversion.chunks import chunks_of, together
from milepost.foreign import ForeignReader
from milepost.graph.keys import OBJECT_GRAPH, unescape
from milepost.tools.blocks import blocks_of
from milepost.tools.small_tensors import SmallTensors, compared
from milepost.tools.statistics import Difference, is_numeric
from milepost.tools.tensors import Row, checksums_of, rows_of

Kind = Literal["added", "removed", "reshaped", "retyped", "changed"]
KINDS: Final[tuple[Kind, ...]] = ("removed", "added", "reshaped", "retyped", "changed")


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
    difference: Difference | None = None

    def to_dict(self) -> dict[str, Any]:
        """The difference for JSON."""
        found: dict[str, Any] = {"change": self.kind, "key": self.key}
        for name, row in (("before", self.before), ("after", self.after)):
            found[name] = None if row is None else {"key": row.key, "dtype": row.dtype.name, "shape": list(row.shape)}
        return found | (self.difference.to_dict() if self.difference is not None else {})


class Comparison:
    """A comparison of two open checkpoints.

    A file of another library is compared with a checkpoint by the paths of values, in which ``.`` and ``/`` are the same. The object graph is
    not compared, since it is the text of names that are compared anyway.

    Args:
        first: One checkpoint.
        second: The other one.

    Attributes:
        pairs: The tensors that both have.
        structure: The differences of names, shapes and element types.
    """

    def __init__(self, first: BundleReader, second: BundleReader) -> None:
        self._readers = first, second
        is_mixed = isinstance(first, ForeignReader) != isinstance(second, ForeignReader)
        before, after = (by_name(reader, as_path=is_mixed) for reader in self._readers)
        self.pairs: list[tuple[Row, Row]] = []
        self.structure: list[Change] = []
        for name, old in before.items():
            new = after.get(name)
            if new is None:
                self.structure.append(Change("removed", old.key, old))
                continue
            self.pairs.append((old, new))
            if old.shape != new.shape:
                self.structure.append(Change("reshaped", old.key, old, new))
            elif old.dtype is not new.dtype:
                self.structure.append(Change("retyped", old.key, old, new))
        self.structure += [Change("added", new.key, None, new) for name, new in after.items() if name not in before]

    def to_read(self, *, trust_checksums: bool = False) -> list[tuple[Row, Row]]:
        """The pairs whose values must be read to compare them: those of one shape.

        Args:
            trust_checksums: Whether tensors of one element type, size and CRC-32C count as equal.
        """
        pairs = [(old, new) for old, new in self.pairs if old.shape == new.shape]
        if not trust_checksums:
            return pairs
        first, second = map(checksums_of, self._readers)
        return [
            (old, new)
            for old, new in pairs
            if old.dtype is not new.dtype or old.key not in first or first[old.key] != second.get(new.key)
        ]

    def changes(self, pairs: list[tuple[Row, Row]]) -> Iterator[Change]:
        """Reads values, and yields those that differ.

        Args:
            pairs: What to compare.

        Raises:
            CorruptCheckpointError: Some bytes are damaged.
        """
        first, second = map(SmallTensors, self._readers)
        together: list[tuple[Row, Row]] = []
        others: list[tuple[Row, Row]] = []
        for pair in pairs:
            (together if pair[0] in first and pair[1] in second else others).append(pair)
        for pair, found in compared(first, second, together):
            change = _change(pair, found)
            if change is not None:
                yield change
        for pair in others:
            change = _change(pair, self._difference(*pair))
            if change is not None:
                yield change

    def _difference(self, old: Row, new: Row) -> Difference | None:
        """How much two tensors of one shape differ. None if that cannot be said, since one is text and the other is not."""
        first, second = self._readers
        if is_numeric(old.dtype) != is_numeric(new.dtype):
            return None
        found = Difference()
        if not is_numeric(old.dtype):
            a, b = first.read(old.key), second.read(new.key)
            found.count, found.unequal = a.size, int(np.sum(np.asarray(a != b, bool)))
            return found
        for a, b in together([chunks_of(first, old.key), chunks_of(second, new.key)]):
            for first_block, second_block in zip(blocks_of(a), blocks_of(b), strict=True):
                found.add(first_block, second_block)
        return found


def _change(pair: tuple[Row, Row], found: Difference | None) -> Change | None:
    """The change that a difference of values is, if it is one."""
    old, new = pair
    if found is None or not (found.unequal or old.dtype is not new.dtype):
        return None
    kind: Kind = "changed" if old.dtype is new.dtype else "retyped"
    return Change(kind, old.key, old, new, found if is_numeric(old.dtype) else None)


def by_name(reader: BundleReader, *, as_path: bool) -> dict[str, Row]:
    """The tensors of a checkpoint by the names under which others are compared with them. The object graph is none of them.

    Args:
        reader: The open checkpoint.
        as_path: Whether ``.`` and ``/`` are the same, as they must be where a file of another library is compared with a checkpoint.
    """
    rows = (row for row in rows_of(reader) if row.key != OBJECT_GRAPH)
    if not as_path:
        return {row.key: row for row in rows}
    escapes = not isinstance(reader, ForeignReader)
    return {_path_of(row.key, escapes=escapes): row for row in rows}


def _path_of(key: str, *, escapes: bool) -> str:
    """The name of a tensor with ``/`` for ``.``.

    Args:
        key: Its key.
        escapes: Whether dots in names are escaped, as in checkpoints.
    """
    name = short_name(key)
    return ("/".join(map(unescape, name.split("/"))) if escapes else name).replace(".", "/")
