"""Class weights as sample weights, as in ``fit(class_weight=...)``.

Targets are class numbers, one in each row, or one-hot vectors, or probabilities. A class without a weight has weight 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from milepost.callbacks.data.sources import Attach, Source
from milepost.errors import UnsupportedError


def with_class_weights(
    batch: Sequence[Any], class_weight: Mapping[int, float], floatx: str
) -> tuple[Any, Any, np.ndarray[Any, Any]]:
    """Makes ``(x, y, sample_weight)`` from ``(x, y)``.

    Raises:
        UnsupportedError: There are no targets, several, or sample weights already.

    Example:
        >>> with_class_weights((None, np.array([[0], [1], [2]])), {1: 5.0}, "float32")[2]
        array([1., 5., 1.], dtype=float32)
    """
    targets = targets_of(batch)
    targets = np.asarray(targets.detach().cpu() if hasattr(targets, "detach") else targets)
    if targets.ndim > 1:
        targets = np.argmax(targets, axis=-1) if targets.shape[-1] != 1 else np.squeeze(targets, axis=-1)
    kinds = np.round(targets).astype("int32")
    weights = np.ones(kinds.shape[:1], floatx)
    for row, kind in enumerate(kinds):
        weights[row] = class_weight.get(int(kind), 1.0)
    return batch[0], batch[1], weights


def targets_of(batch: Any) -> Any:
    """The targets of a batch.

    Raises:
        UnsupportedError: There are none, several, or sample weights already.
    """
    weights = batch[2] if isinstance(batch, (list, tuple)) and len(batch) > 2 else None
    targets = batch[1] if isinstance(batch, (list, tuple)) and len(batch) > 1 else None
    if weights is not None or targets is None or isinstance(targets, (dict, list, tuple)):
        raise UnsupportedError(
            "class_weight needs exactly one array of targets and no sample_weight",
            key="data",
            expected="x and y",
            found="sample_weight" if weights is not None else "no targets" if targets is None else "several targets",
            remedy="pass a sample_weight that includes the weights of the classes",
        )
    return targets


class WeightedSource(Source):
    """Batches ``(x, y)`` of another source as ``(x, y, sample_weight)``."""

    def __init__(self, source: Source, class_weight: Mapping[int, float], floatx: str) -> None:
        self._source = source
        self._class_weight = class_weight
        self._floatx = floatx
        self.length = source.length

    def begin(self, number: int) -> None:
        self._source.begin(number)

    def next(self) -> Any:
        return with_class_weights(self._source.next(), self._class_weight, self._floatx)

    def save(self) -> Any:
        return self._source.save()

    def check(self, state: Any) -> None:
        self._source.check(state)

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        self._source.load(state, number, index, ended, attach)

    def reset(self, state: Any) -> None:
        self._source.reset(state)

    def tracked(self) -> Any:
        return self._source.tracked()

    def stand_in(self) -> Any:
        return self._source.stand_in()
