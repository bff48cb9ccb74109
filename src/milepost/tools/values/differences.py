"""How much many tensors differ, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np

from milepost.tools.values.statistics import TensorDifference

_FIELDS = ("count", "unequal", "largest", "norm", "before")


class Differences:
    """How much some pairs of tensors differ. The columns are the attributes of `TensorDifference`; a count of -1 means that nothing is known.

    Args:
        size: The number of pairs, of which nothing is known yet.

    Example:
        >>> differences = Differences(2)
        >>> differences.put([1], Differences.of([TensorDifference(4, 1, 0.5, 0.5, 2.0)]))
        >>> differences.get(0), differences.get(1).largest, differences.relative.tolist()
        (None, 0.5, [0.0, 0.25])
    """

    def __init__(self, size: int) -> None:
        self.count, self.unequal = np.full(size, -1), np.zeros(size, np.int64)
        self.largest, self.norm, self.before = np.zeros((3, size))

    @classmethod
    def of(cls, found: Iterable[TensorDifference]) -> Self:
        """The columns of some differences."""
        rows = [[getattr(each, name) for name in _FIELDS] for each in found]
        return cls.joined(*([row[number] for row in rows] for number in range(len(_FIELDS))))

    @classmethod
    def joined(cls, count: Any, unequal: Any, largest: Any, norm: Any, before: Any) -> Self:
        """The differences with these columns."""
        made = cls(0)
        made.count, made.unequal = np.asarray(count, np.int64), np.asarray(unequal, np.int64)
        made.largest, made.norm, made.before = (np.asarray(each, np.float64) for each in (largest, norm, before))
        return made

    @property
    def relative(self) -> Any:
        """What `TensorDifference.relative` is of each."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.norm == 0, 0.0, self.norm / self.before)

    def put(self, places: Any, found: Differences) -> None:
        """Notes what was found of some pairs."""
        for name in _FIELDS:
            getattr(self, name)[places] = getattr(found, name)

    def take(self, places: Any) -> Differences:
        """The columns of some pairs."""
        return Differences.joined(*(getattr(self, name)[places] for name in _FIELDS))

    def get(self, place: int) -> TensorDifference | None:
        """How much one pair differs; None if that is not known."""
        return next(self.take([place]).each())

    def each(self) -> Iterator[TensorDifference | None]:
        """How much each pair differs; None if that is not known."""
        rows = zip(*(getattr(self, name).tolist() for name in _FIELDS), strict=True)
        return (TensorDifference(*row) if row[0] >= 0 else None for row in rows)
