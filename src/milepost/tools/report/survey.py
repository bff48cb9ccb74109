"""Reads the values of some checkpoints, once and in pieces, and measures each tensor and how it moved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from milepost.bundle import BundleReader, for_each
from milepost.bundle.counting import counted_by, counter
from milepost.bundle.parallel import THREADS
from milepost.errors import MilepostError, without_remedy
from milepost.tools.report.measurement import Measurement, Pair, Section
from milepost.tools.report.small import measure_small
from milepost.tools.report.subject import Subject
from milepost.tools.values.comparison import by_name
from milepost.tools.values.statistics import TensorDifference, is_numeric
from milepost.tools.values.tensors import Row, Tensors

_COUNTED: Final = 1 << 17
"""Elements of a tensor that its histogram counts, about, if it has more."""
_SHARED: Final = 1 << 20
"""Bytes of a tensor from which on several threads measure it. For smaller ones Python takes longer than NumPy, and runs in one thread at a time."""


def pairs_of(count: int) -> list[Pair]:
    """Which of some checkpoints are compared: neighbours, and the first with the last.

    Example:
        >>> pairs_of(1), pairs_of(2), pairs_of(4)
        ([], [(0, 1)], [(0, 1), (1, 2), (2, 3), (0, 3)])
    """
    neighbours = list(itertools.pairwise(range(count)))
    return [*neighbours, (0, count - 1)] if count > 2 else neighbours


def subjects_of(readers: Sequence[BundleReader], rows: Sequence[Sequence[Row]]) -> list[Subject]:
    """The tensors of some checkpoints, by name. The object graph is none of them.

    Args:
        readers: The checkpoints.
        rows: All tensors of each.
    """
    is_mixed = len({reader.origin.is_checkpoint for reader in readers}) > 1
    tables = [by_name(each, reader, as_path=is_mixed) for each, reader in zip(rows, readers, strict=True)]
    names = dict.fromkeys(itertools.chain.from_iterable(tables))
    return [Subject(name, [table.get(name) for table in tables]) for name in names]


def measure(
    subjects: Sequence[Subject],
    readers: Sequence[BundleReader],
    tensors: Sequence[Tensors],
    pairs: Sequence[Pair],
    binned: Collection[str],
) -> None:
    """Reads the values of tensors, each once, and notes in every subject what they are.

    Args:
        subjects: The tensors.
        readers: The checkpoints.
        tensors: All tensors of each.
        pairs: Which of them to compare.
        binned: The names of those whose histogram in the last checkpoint is wanted.
    """
    others = measure_small(subjects, readers, tensors, pairs, binned)
    measured = _prepared(others, readers, pairs, binned)
    _measure([measurement for _, _, measurement in measured])
    for subject, positions, measurement in measured:
        try:
            _note(subject, positions, measurement)
        except MilepostError:
            # one of them is damaged: each by itself says which
            for position in positions:
                try:
                    alone = _measurement(subject, [position], readers, (), binned)
                    _measure([alone])
                    _note(subject, [position], alone)
                except MilepostError as error:
                    subject.problems[position] = without_remedy(error)
    for subject in others:
        _compare_text(subject, readers, pairs)


def _prepared(
    subjects: Sequence[Subject], readers: Sequence[BundleReader], pairs: Sequence[Pair], binned: Collection[str]
) -> list[tuple[Subject, list[int], Measurement]]:
    """The measurements to make: of each tensor with numbers one for each shape, with the positions of the checkpoints in which it has it."""
    prepared = []
    for subject in subjects:
        subject.statistics = [None] * len(readers)
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for position, row in enumerate(subject.rows):
            if row is not None and is_numeric(row.dtype):
                by_shape.setdefault(row.shape, []).append(position)
            elif row is not None:
                _read_text(subject, readers, position)
        for positions in by_shape.values():
            measurement = _measurement(subject, positions, readers, pairs, binned)
            prepared.append((subject, positions, measurement))
    return prepared


def _measurement(
    subject: Subject,
    positions: Sequence[int],
    readers: Sequence[BundleReader],
    pairs: Sequence[Pair],
    binned: Collection[str],
) -> Measurement:
    """The measurement of one tensor in checkpoints in which it has one shape."""
    rows = [row for position in positions if (row := subject.rows[position]) is not None]
    compared = [
        (positions.index(old), positions.index(new)) for old, new in pairs if old in positions and new in positions
    ]
    step = 0
    if subject.name in binned and positions[-1] == len(readers) - 1:
        # an odd number, so that not always the same column of a matrix is counted
        step = math.prod(rows[-1].shape) // _COUNTED | 1
    return Measurement(rows, [readers[position] for position in positions], compared, step)


def _measure(measurements: Sequence[Measurement]) -> None:
    """Measures large tensors on several threads, and all others on this one."""
    count = counter()
    shared: list[tuple[Measurement, Section]] = []
    unshared: list[tuple[Measurement, Section]] = []
    for each in measurements:
        kept = shared if each.is_shared and each.size >= _SHARED else unshared
        kept.extend((each, section) for section in each.sections)

    def work(item: tuple[Measurement, Section]) -> None:
        with counted_by(count):
            item[0].measure(item[1])

    for_each(work, shared, threads=THREADS if len(shared) > 1 else 1)
    for each, section in unshared:
        each.measure(section)


def _note(subject: Subject, positions: Sequence[int], measurement: Measurement) -> None:
    """Notes what was found. Errors are those of `Measurement.result`."""
    result = measurement.result()
    for position, statistics in zip(positions, result.statistics, strict=True):
        subject.statistics[position] = statistics
    for (old, new), difference in result.differences.items():
        subject.differences[positions[old], positions[new]] = difference


def _read_text(subject: Subject, readers: Sequence[BundleReader], position: int) -> None:
    """Reads a tensor that is not numeric, to see whether it is damaged."""
    row = subject.rows[position]
    assert row is not None
    try:
        readers[position].read(row.key)
    except MilepostError as error:
        subject.problems[position] = without_remedy(error)


def _compare_text(subject: Subject, readers: Sequence[BundleReader], pairs: Sequence[Pair]) -> None:
    for old, new in pairs:
        before, after = subject.rows[old], subject.rows[new]
        if before is None or after is None or before.shape != after.shape or {old, new} & subject.problems.keys():
            continue
        if is_numeric(before.dtype) or is_numeric(after.dtype):
            continue
        a, b = readers[old].read(before.key), readers[new].read(after.key)
        difference = TensorDifference(a.size, int(np.sum(np.asarray(a != b, bool))))
        subject.differences[old, new] = difference


def sizes_read(subjects: Sequence[Subject]) -> Iterator[int]:
    """The bytes of every tensor that `measure` reads."""
    return (row.size for subject in subjects for row in subject.rows if row is not None)
