"""Compares two checkpoints: which tensors each has, their element types and shapes, and their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from milepost.bundle import BundleReader
from milepost.checkpoint.short_names import short_name
from milepost.conversion.chunks import chunks_of, together
from milepost.foreign import ForeignReader
from milepost.graph.keys import OBJECT_GRAPH
from milepost.tools.statistics import Difference, is_numeric
from milepost.tools.tensors import Row, rows_of

Kind = Literal["added", "removed", "reshaped", "retyped", "changed"]
KINDS: Final[tuple[Kind, ...]] = ("removed", "added", "reshaped", "retyped", "changed")


@dataclass(frozen=True, slots=True)
class Change:
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
        return [pair for pair in pairs if not self._have_same_checksum(*pair)] if trust_checksums else pairs

    def changes(self, pairs: list[tuple[Row, Row]]) -> Iterator[Change]:
        """Reads values, and yields those that differ.

        Args:
            pairs: What to compare.

        Raises:
            CorruptCheckpointError: Some bytes are damaged.
        """
        for old, new in pairs:
            difference = self._difference(old, new)
            if difference is not None and (difference.unequal or old.dtype is not new.dtype):
                kind: Kind = "changed" if old.dtype is new.dtype else "retyped"
                yield Change(kind, old.key, old, new, difference if is_numeric(old.dtype) else None)

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
            found.add(a, b)
        return found

    def _have_same_checksum(self, old: Row, new: Row) -> bool:
        first, second = self._readers
        if isinstance(first, ForeignReader) or isinstance(second, ForeignReader) or old.dtype is not new.dtype:
            return False
        a, b = first.entry(old.key), second.entry(new.key)
        return not (a.slices or b.slices) and bool(a.crc) and (a.size, a.crc) == (b.size, b.crc)


def by_name(reader: BundleReader, *, as_path: bool) -> dict[str, Row]:
    """The tensors of a checkpoint by the names under which others are compared with them. The object graph is none of them.

    Args:
        reader: The open checkpoint.
        as_path: Whether ``.`` and ``/`` are the same, as they must be where a file of another library is compared with a checkpoint.
    """
    rows = (row for row in rows_of(reader, places=False) if row.key != OBJECT_GRAPH)
    return {short_name(row.key).replace(".", "/") if as_path else row.key: row for row in rows}
