"""Reads the values of some checkpoints, once and in pieces, and measures each tensor and how it moved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.conversion.chunks import chunks_of, together
from milepost.errors import MilepostError, without_remedy
from milepost.foreign import ForeignReader
from milepost.tools.comparison import by_name
from milepost.tools.histogram import Histogram
from milepost.tools.statistics import Difference, Statistics, is_numeric, parts_of
from milepost.tools.tensors import Row

_COUNTED: Final = 1 << 19
"""Elements of a tensor that its histogram counts, about, if it has more."""

Pair = tuple[int, int]
"""The positions of two checkpoints that are compared."""


@dataclass(slots=True)
class Subject:
    """A tensor of one or several checkpoints.

    Attributes:
        name: The name under which they are compared.
        rows: The tensor in each checkpoint; None where it is missing.
        statistics: Its statistics in each; None where it is missing, is not numeric, is damaged, or was not read.
        differences: How much it differs between two checkpoints, if both have it in one shape.
        problems: Why it could not be read, by the position of the checkpoint.
    """

    name: str
    rows: list[Row | None]
    statistics: list[Statistics | None] = field(default_factory=list)
    differences: dict[Pair, Difference] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)


def pairs_of(count: int) -> list[Pair]:
    """Which of some checkpoints are compared: neighbours, and the first with the last.

    Example:
        >>> pairs_of(1), pairs_of(2), pairs_of(4)
        ([], [(0, 1)], [(0, 1), (1, 2), (2, 3), (0, 3)])
    """
    neighbours = list(itertools.pairwise(range(count)))
    return [*neighbours, (0, count - 1)] if count > 2 else neighbours


def subjects_of(readers: Sequence[BundleReader]) -> list[Subject]:
    """The tensors of some checkpoints, by name. The object graph is none of them."""
    is_mixed = len({isinstance(reader, ForeignReader) for reader in readers}) > 1
    tables = [by_name(reader, as_path=is_mixed) for reader in readers]
    names = dict.fromkeys(itertools.chain.from_iterable(tables))
    return [Subject(name, [table.get(name) for table in tables]) for name in names]


def measure(
    subjects: Sequence[Subject], readers: Sequence[BundleReader], pairs: Sequence[Pair], binned: Collection[str]
) -> None:
    """Reads the values of tensors, each once, and notes in every subject what they are.

    Args:
        subjects: The tensors.
        readers: The checkpoints.
        pairs: Which of them to compare.
        binned: The names of those whose histogram in the last checkpoint is wanted.
    """
    for subject in subjects:
        subject.statistics = [None] * len(readers)
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for place, row in enumerate(subject.rows):
            if row is not None and is_numeric(row.dtype):
                by_shape.setdefault(row.shape, []).append(place)
            elif row is not None:
                _read_text(subject, readers, place)
        for places in by_shape.values():
            try:
                _measure(subject, readers, places, pairs, binned)
            except MilepostError:
                # one of them is damaged: each by itself says which
                for place in places:
                    try:
                        _measure(subject, readers, [place], (), binned)
                    except MilepostError as error:
                        subject.problems[place] = without_remedy(error)
        _compare_text(subject, readers, pairs)


def _measure(
    subject: Subject,
    readers: Sequence[BundleReader],
    places: Sequence[int],
    pairs: Sequence[Pair],
    binned: Collection[str],
) -> None:
    """Measures one tensor in checkpoints in which it has one shape."""
    found = [Statistics() for _ in places]
    rows = [row for place in places if (row := subject.rows[place]) is not None]
    if subject.name in binned and places[-1] == len(readers) - 1:
        count = math.prod(rows[-1].shape)
        # an odd number, so that not always the same column of a matrix is counted
        found[-1].histogram = Histogram(count // _COUNTED | 1)
    compared = [pair for pair in pairs if pair[0] in places and pair[1] in places]
    differences = {pair: Difference() for pair in compared}
    runs = [chunks_of(readers[place], row.key) for place, row in zip(places, rows, strict=True)]
    for chunks in together(runs):
        for parts in zip(*map(parts_of, chunks), strict=True):
            for statistics, part in zip(found, parts, strict=True):
                statistics.add(part)
            for (old, new), difference in differences.items():
                difference.add(parts[places.index(old)], parts[places.index(new)])
    for place, statistics in zip(places, found, strict=True):
        subject.statistics[place] = statistics
    subject.differences |= differences


def _read_text(subject: Subject, readers: Sequence[BundleReader], place: int) -> None:
    """Reads a tensor that is not numeric, to see whether it is damaged."""
    row = subject.rows[place]
    assert row is not None
    try:
        readers[place].read(row.key)
    except MilepostError as error:
        subject.problems[place] = without_remedy(error)


def _compare_text(subject: Subject, readers: Sequence[BundleReader], pairs: Sequence[Pair]) -> None:
    for old, new in pairs:
        before, after = subject.rows[old], subject.rows[new]
        if before is None or after is None or before.shape != after.shape or {old, new} & subject.problems.keys():
            continue
        if is_numeric(before.dtype) or is_numeric(after.dtype):
            continue
        a, b = readers[old].read(before.key), readers[new].read(after.key)
        difference = Difference(a.size, int(np.sum(np.asarray(a != b, bool))))
        subject.differences[old, new] = difference


def sizes_read(subjects: Sequence[Subject]) -> Iterator[int]:
    """The bytes of every tensor that `measure` reads."""
    return (row.size for subject in subjects for row in subject.rows if row is not None)
