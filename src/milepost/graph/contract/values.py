"""One tensor of an object, as its adapter presents it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from milepost.tensor import DType, PiecewiseArray, TensorSlice

Array = np.ndarray[Any, Any]
Shape = tuple[int | None, ...]
ANY_SHAPE: Final[Shape] = (-1,)
"""Of a value that takes any number of dimensions, of any lengths."""


class StoredTensor(Protocol):
    """A saved value of which boxes can be read, so that it is never in memory as a whole."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's element type."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the whole value."""
        ...

    def read(self, box: TensorSlice) -> Array:
        """Reads a box into a fresh array."""
        ...


class Value:
    """One tensor of an object, as `Adapter.values` presents it.

    Args:
        name: Local name, the last part of the key. The only value of a variable is `VARIABLE_VALUE` by convention, as in
            TensorFlow; no name may be used twice in one object.
        dtype: Element type; a saved value of another type does not fit.
        shape: Dimensions; None where any length fits, and `ANY_SHAPE` for any number of dimensions.
        source: The array itself, or a function that makes it, called only when the value is saved. It may lie in pieces.
            An asynchronous save copies what it gets. It does not change it.
        destination: Writable C-contiguous memory of exactly ``dtype`` and ``shape`` that a saved value may be read
            straight into, or None if it must go through `Adapter.assign`. It must be the object's own memory.
        full_name: The variable's own name, by which name-based (TensorFlow 1) checkpoints are matched.
        accepts: Other element types of saved values that `Adapter.assign` converts without loss, or refuses.
        listed: The name under which the object graph lists the value, if another than ``name``, as TensorFlow does for
            iterators and tables; several values may be listed under one.
        skipped_by_tensorflow: Whether TensorFlow does not save the value. Its own assertions are not told of it then.
        in_boxes: Whether `Adapter.assign` may get a `StoredTensor` in the place of an array, to read boxes of it.

    Attributes:
        name, dtype, shape, source, destination, full_name, accepts, skipped_by_tensorflow, in_boxes: As given.
        listed: As given, or ``name``.

    Example:
        >>> import numpy as np
        >>> weight = np.zeros((2, 3), np.float32)
        >>> value = Value("VARIABLE_VALUE", DType.of(weight), weight.shape, source=weight, destination=weight)
        >>> value.read() is weight
        True
    """

    __slots__ = (
        "accepts",
        "destination",
        "dtype",
        "full_name",
        "in_boxes",
        "listed",
        "name",
        "shape",
        "skipped_by_tensorflow",
        "source",
    )

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: Shape,
        source: Array | Callable[[], Array | PiecewiseArray],
        destination: Array | None = None,
        full_name: str = "",
        accepts: frozenset[DType] = frozenset(),
        listed: str = "",
        skipped_by_tensorflow: bool = False,
        in_boxes: bool = False,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.source = source
        self.destination = destination
        self.full_name = full_name
        self.accepts = accepts
        self.listed = listed or name
        self.skipped_by_tensorflow = skipped_by_tensorflow
        self.in_boxes = in_boxes

    def read(self) -> Array | PiecewiseArray:
        """The value as an array, without a copy where the object has one."""
        return self.source() if callable(self.source) else self.source

    def taken(self, array: Array) -> Array:
        """A saved value as `Adapter.assign` is to get it."""
        return array
