"""One tensor of the checkpoints that a page is about, and what was found of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.tools.report.measurement import Pair
from milepost.tools.values.statistics import Statistics, TensorDifference
from milepost.tools.values.tensors import Row


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
    differences: dict[Pair, TensorDifference] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
