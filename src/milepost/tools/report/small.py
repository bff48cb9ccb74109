"""Measures many small tensors of one or several checkpoints at once.

To measure one tensor takes a hundred microseconds, whatever its size. Here neighbours are read together, and tensors of one element type are
measured as one array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.coding.varints import Column
from milepost.errors import MilepostError
from milepost.tools.report.measurement import Pair
from milepost.tools.report.subject import Subject
from milepost.tools.values.small_statistics import histogram_of_part, statistics_of_parts
from milepost.tools.values.small_tensors import SmallTensors, differences_of
from milepost.tools.values.tensors import Tensors

_BATCH: Final = 1 << 20
"""Bytes of the tensors that are in memory at once, of all checkpoints."""


class _Side:
    """The small tensors of one checkpoint, and where each subject has its own.

    Attributes:
        places: The position of each subject's tensor; -1 if the checkpoint lacks it.
        types: The element types.
        type: Which of them each subject's tensor has.
        size: The bytes of each subject's tensor; 0 without one.
        is_fit: Which subjects have a small tensor here, or none.
        shape: The number of each subject's shape; -1 without one.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        number: int,
        reader: BundleReader,
        tensors: Tensors,
        shapes: dict[tuple[int, ...], int],
    ) -> None:
        self._small = SmallTensors(reader, tensors)
        position = {key: index for index, key in enumerate(tensors.keys)}
        rows = (subject.rows[number] for subject in subjects)
        self.places = np.array([-1 if row is None else position[row.key] for row in rows], np.int64)
        is_there = self.places >= 0
        self.types, self.type = self._small.types(self.places)
        self.size = np.where(is_there, self._small.sizes(self.places), 0)
        self.is_fit = ~is_there | self._small.contains(self.places)
        numbers = np.array([shapes.setdefault(spec.shape, len(shapes)) for spec in tensors.specs], np.int64)
        self.shape = np.where(is_there, numbers[tensors.spec[self.places]], -1)

    def read(self, batch: Column) -> list[bytes | None]:
        """The bytes of the tensors of some subjects; None for one that the checkpoint lacks."""
        positions = self.places[batch]
        is_there = positions >= 0
        data = iter(self._small.read(positions[is_there])) if is_there.any() else iter(())
        return [next(data) if here else None for here in is_there.tolist()]


def measure_small(
    subjects: Sequence[Subject],
    readers: Sequence[BundleReader],
    tensors: Sequence[Tensors],
    pairs: Sequence[Pair],
    binned: Collection[str],
) -> list[Subject]:
    """Measures the tensors that are small in every checkpoint and have one shape in all.

    Args:
        subjects: The tensors.
        readers: The checkpoints.
        tensors: All tensors of each.
        pairs: Which checkpoints to compare.
        binned: The names of those whose histogram in the last checkpoint is wanted.

    Returns:
        The subjects that were not measured, those that are damaged among them.
    """
    if not subjects:
        return []
    shapes: dict[tuple[int, ...], int] = {}
    sides = [_Side(subjects, number, *each, shapes) for number, each in enumerate(zip(readers, tensors, strict=True))]
    shape = np.max([side.shape for side in sides], axis=0)
    is_small = np.all([side.is_fit & ((side.shape == shape) | (side.shape < 0)) for side in sides], axis=0)
    others = np.flatnonzero(~is_small).tolist()
    for batch in _batches(np.flatnonzero(is_small), np.sum([side.size for side in sides], axis=0)):
        try:
            data_by_side = [side.read(batch) for side in sides]
        except MilepostError:  # of which tensor, is found where each is measured by itself
            others += batch.tolist()
            continue
        batch_subjects = [subjects[number] for number in batch.tolist()]
        _measure(batch_subjects, batch, sides, data_by_side, pairs)
        for subject, data, kind in zip(batch_subjects, data_by_side[-1], sides[-1].type[batch].tolist(), strict=True):
            if data is not None and subject.name in binned:
                statistics = subject.statistics[-1]
                assert statistics is not None, "it was measured"
                statistics.histogram = histogram_of_part(np.frombuffer(data, sides[-1].types[kind].numpy))
    return [subjects[number] for number in sorted(others)]


def _batches(numbers: Column, sizes: Column) -> Iterator[Column]:
    if len(numbers):
        yield from np.split(numbers, np.flatnonzero(np.diff(np.cumsum(sizes[numbers]) // _BATCH)) + 1)


def _measure(
    subjects: Sequence[Subject],
    batch: Column,
    sides: Sequence[_Side],
    data_by_side: Sequence[Sequence[bytes | None]],
    pairs: Sequence[Pair],
) -> None:
    """Notes statistics and differences of subjects whose bytes are in memory."""
    for subject in subjects:
        subject.statistics = [None] * len(sides)
    for number in range(len(sides)):
        for positions, (elements,), counts in _by_type(batch, [sides[number]], [data_by_side[number]]):
            for position, statistics in zip(positions, statistics_of_parts(elements, counts), strict=True):
                subjects[position].statistics[number] = statistics
    for pair in pairs:
        both = [sides[number] for number in pair], [data_by_side[number] for number in pair]
        for positions, (old, new), counts in _by_type(batch, *both):
            for position, difference in zip(positions, differences_of(old, new, counts).each(), strict=True):
                if difference is not None:
                    subjects[position].differences[pair] = difference


def _by_type(
    batch: Column, sides: Sequence[_Side], data_by_side: Sequence[Sequence[bytes | None]]
) -> Iterator[tuple[list[int], list[Any], Column]]:
    """The tensors that some checkpoints all have, by their element types there.

    Yields:
        Their positions in the batch, their elements in each checkpoint as one array, and how many elements each has.
    """
    is_there = np.all([side.places[batch] >= 0 for side in sides], axis=0)
    kind = np.zeros(len(batch), np.int64)
    for side in sides:
        kind = kind * len(side.types) + side.type[batch]
    for number in np.unique(kind[is_there]).tolist():
        chosen = np.flatnonzero(is_there & (kind == number))
        positions = chosen.tolist()
        types = [side.types[int(side.type[batch[chosen[0]]])] for side in sides]
        arrays = [
            np.frombuffer(
                b"".join([data for position in positions if (data := side_data[position]) is not None]), dtype.numpy
            )
            for side_data, dtype in zip(data_by_side, types, strict=True)
        ]
        yield positions, arrays, sides[0].size[batch[chosen]] // types[0].itemsize
