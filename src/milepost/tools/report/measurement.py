"""Measures one tensor in one or several checkpoints, in sections that several threads can take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from milepost.bundle import BundleReader
from milepost.bundle.memory import Array
from milepost.conversion.chunks import Sections, chunks_of, together
from milepost.errors import MilepostError
from milepost.tools.values.blocks import BlockMemory, blocks_of
from milepost.tools.values.histogram import Histogram
from milepost.tools.values.statistics import Statistics, TensorDifference
from milepost.tools.values.tensors import Row

_SECTION: Final = 1 << 22
"""Elements of a section."""

Pair = tuple[int, int]
"""The positions of two checkpoints that are compared."""


class Section:
    """Some elements of a tensor, and what was found of them.

    Attributes:
        start: The first one.
        stop: The one after the last.
        statistics: Their statistics in each checkpoint.
        differences: Their differences between two checkpoints.
    """

    __slots__ = ("differences", "start", "statistics", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.statistics: list[Statistics] = []
        self.differences: dict[Pair, TensorDifference] = {}


class Measurement:
    """The measurement of a tensor.

    Args:
        rows: The tensor in each checkpoint. It has one shape in all.
        readers: These checkpoints.
        pairs: The positions, in ``rows``, of those that are compared.
        step: Every how many elements the histogram of the last one counts one; 0 for no histogram.

    Attributes:
        sections: What it is divided into. All must be measured before `result` is asked for.
        is_shared: Whether several threads may measure them at the same time.
        size: The bytes of the tensor in all checkpoints.
    """

    def __init__(self, rows: Sequence[Row], readers: Sequence[BundleReader], pairs: Sequence[Pair], step: int) -> None:
        self._rows, self._readers, self._pairs, self._step = rows, readers, pairs, step
        self._error: MilepostError | None = None
        self._runs: list[Sections] = []
        try:
            self._runs = self._in_sections()
        except MilepostError as error:
            self._error = error
        self.size = sum(row.size for row in rows)
        self.is_shared = bool(self._runs)
        count = math.prod(rows[0].shape)
        ends = [*range(0, count, _SECTION), count] if self.is_shared and count else [0, count]
        self.sections = [] if self._error is not None else [Section(*each) for each in pairwise(ends)]

    def measure(self, section: Section) -> None:
        """Measures a section. An error is kept for `result`."""
        if self._error is None:
            try:
                self._measure(section)
            except MilepostError as error:
                self._error = error

    def result(self) -> Section:
        """What was found of the whole tensor.

        Raises:
            CorruptCheckpointError: The bytes of one of the checkpoints are damaged.
            MilepostError: One of them cannot be read.
        """
        if self._error is not None:
            raise self._error
        for run in self._runs:
            run.check()
        whole, *others = self.sections
        for section in others:
            for mine, more in zip(whole.statistics, section.statistics, strict=True):
                mine.join(more)
            for pair, difference in whole.differences.items():
                difference.join(section.differences[pair])
        return whole

    def _in_sections(self) -> list[Sections]:
        """The tensor in each checkpoint, if all can be read in sections. Otherwise nothing."""
        runs = []
        for row, reader in zip(self._rows, self._readers, strict=True):
            extent = reader.extent(row.key)
            if extent is None:
                return []
            runs.append(Sections(row.key, *extent))
        return runs

    def _chunks(self, section: Section) -> list[Iterator[Array]]:
        if self._runs:
            return [run.chunks(section.start, section.stop) for run in self._runs]
        return [chunks_of(reader, row.key) for row, reader in zip(self._rows, self._readers, strict=True)]

    def _measure(self, section: Section) -> None:
        section.statistics = [Statistics() for _ in self._rows]
        section.differences = {pair: TensorDifference() for pair in self._pairs}
        if self._step:
            section.statistics[-1].histogram = Histogram(self._step)
        rooms = [BlockMemory() for _ in self._rows]
        for chunks in together(self._chunks(section)):
            for blocks in zip(*map(blocks_of, chunks, rooms), strict=True):
                for statistics, block in zip(section.statistics, blocks, strict=True):
                    statistics.add(block)
                for (old, new), difference in section.differences.items():
                    difference.add(blocks[old], blocks[new])
