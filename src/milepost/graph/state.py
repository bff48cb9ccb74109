"""Bases of objects that convert their state to text or to tensors."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


class PythonState(abc.ABC):
    """Base of objects whose state is saved as text, as with ``tf.train.experimental.PythonState``.

    Example:
        >>> import json, milepost
        >>> class Position(milepost.PythonState):
        ...     index = 0
        ...     def serialize(self):
        ...         return json.dumps(self.index)
        ...     def deserialize(self, string_value):
        ...         self.index = json.loads(string_value)
    """

    @abc.abstractmethod
    def serialize(self) -> str | bytes:
        """Returns the state as text or bytes."""

    @abc.abstractmethod
    def deserialize(self, string_value: str) -> None:
        """Restores the state that `serialize` returned. Text comes as ``str``, bytes that are not UTF-8 as ``bytes``."""


class TensorState(abc.ABC):
    """Base of objects whose state is saved as named tensors.

    Example:
        >>> import numpy as np, milepost
        >>> class Histogram(milepost.TensorState):
        ...     counts = {}
        ...     def serialize(self):
        ...         return {"words": list(self.counts), "counts": list(self.counts.values())}
        ...     def deserialize(self, tensors):
        ...         self.counts = dict(zip(tensors["words"].tolist(), tensors["counts"].tolist()))
    """

    @abc.abstractmethod
    def serialize(self) -> Mapping[str, ArrayLike]:
        """Returns the state as a dict of arrays. The object chooses the names."""

    @abc.abstractmethod
    def deserialize(self, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Restores the state from the saved arrays. Their shapes and dtypes are those that were saved."""
