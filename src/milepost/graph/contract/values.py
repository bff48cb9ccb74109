"""One tensor of an object, as its adapter presents it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from milepost.tensor import DType, PiecewiseArray, ShardedArray, TensorSlice

Array = np.ndarray[Any, Any]
Shape = tuple[int | None, ...]
"""The dimensions of a value. None stands for a dimension of any length."""
ANY_SHAPE: Final[Shape] = (-1,)
"""The shape of a value that accepts any number of dimensions, of any lengths."""


class StoredTensor(Protocol):
    """A saved value that can be read box by box, so that it is never in memory as a whole."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, as a NumPy dtype."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole value."""
        ...

    @property
    def in_one_run(self) -> bool:
        """Whether it is one run of bytes in a file. Otherwise a box may take as long as the whole value, for example if that is cast."""
        ...

    def read(self, box: TensorSlice) -> Array:
        """Reads a box into a fresh array."""
        ...

    def read_into(self, box: TensorSlice, target: Array) -> None:
        """Reads a box into a contiguous, writable array of the element type and the shape of the box."""
        ...


class Value:
    """One tensor of an object, as `Adapter.values` presents it.

    Args:
        name: The local name, which is the last part of the key. By convention, as in TensorFlow, it is `VARIABLE_VALUE` for the
            only value of a variable. A name must be unique in an object.
        dtype: The element type. A saved value of another type does not fit.
        shape: The dimensions, with None for a dimension of any length, or `ANY_SHAPE` for any number of dimensions.
        source: The array, or a function that makes it and is called only when the value is saved. The array may lie in
            pieces. A save does not change it; an asynchronous save copies it. It is a `ShardedArray` if other processes hold parts of it.
        destination: Writable C-contiguous memory of exactly ``dtype`` and ``shape`` into which a saved value may be read, or
            None if the value must be assigned by `Adapter.assign`. It must be the memory of the object itself.
        full_name: The name of the variable itself, by which name-based (TensorFlow 1) checkpoints are matched.
        accepts: Other element types of saved values, which `Adapter.assign` converts without loss or refuses.
        listed: The name under which the object graph lists the value, if it is not ``name``. TensorFlow has such names for
            iterators and tables. Several values may have the same.
        skipped_by_tensorflow: Whether TensorFlow does not save the value, so that its own assertions do not fail for it.
        in_boxes: Whether `Adapter.assign` may get a `StoredTensor` instead of an array, to read boxes of it.
        boxes: The boxes that it reads; None if it reads the whole value.

    Attributes:
        listed: As given, or ``name``. The other arguments are attributes too, as given.

    Example:
        >>> import numpy as np
        >>> weight = np.zeros((2, 3), np.float32)
        >>> value = Value("VARIABLE_VALUE", DType.of(weight), weight.shape, source=weight, destination=weight)
        >>> value.read() is weight
        True
    """

    __slots__ = (
        "accepts",
        "boxes",
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
        source: Array | Callable[[], Array | PiecewiseArray | ShardedArray],
        destination: Array | None = None,
        full_name: str = "",
        accepts: frozenset[DType] = frozenset(),
        listed: str = "",
        skipped_by_tensorflow: bool = False,
        in_boxes: bool = False,
        boxes: Sequence[TensorSlice] | None = None,
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
        self.boxes = boxes

    def read(self) -> Array | PiecewiseArray | ShardedArray:
        """The value as an array. It is not copied if the object has an array."""
        return self.source() if callable(self.source) else self.source

    converts: ClassVar[bool] = False
    """Whether `Adapter.assign` gets the result of `taken` instead of the saved array."""

    def taken(self, array: Array) -> Array:
        """A saved value in the form that `Adapter.assign` gets."""
        return array
