"""Describes objects of a framework with which its adapters are tested."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Objects = Mapping[str, Any]
"""Objects of a framework by the names under which a checkpoint holds them."""
Values = Mapping[str, ArrayLike]
"""All values of such objects, under names that the specimen chooses."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """Functions that make, train and read objects of a framework, without milepost.

    Equal seeds must give equal objects, and different seeds must differ in every value.

    Attributes:
        make: Makes complete objects from a seed: layers have been called, and optimizers have taken a step. A `Checkpoint` gets the
            objects under their names.
        read: Returns copies of all values that a checkpoint of the objects must hold, and that exist.
        train: Changes every value as a program does. Returns the new objects if it makes some, as with trees of JAX.
        unbuilt: Makes the same objects from a seed, before they have the children and slot variables that they make later.
        build: Makes these children and slot variables as a program does, with the same values each time. Changes no other value.
        slots: The names of the slot variables in the result of ``read``.
        misfit: Makes the same objects with one value of another shape or element type.
        unsaveable: Makes objects that hold something that no checkpoint can hold, so that a save must fail.
        functional: Whether the values cannot change, so that a restore replaces the objects.

    Example:
        >>> import numpy as np
        >>> def train(objects):
        ...     objects["weights"] += 1
        >>> specimen = Specimen(
        ...     make=lambda seed: {"weights": np.full(3, float(seed))},
        ...     read=lambda objects: {"weights": objects["weights"].copy()},
        ...     train=train,
        ... )
        >>> specimen.values(specimen.make(1))
        {'weights': array([1., 1., 1.])}
    """

    make: Callable[[int], Objects]
    read: Callable[[Objects], Values]
    train: Callable[[Objects], Objects | None]
    unbuilt: Callable[[int], Objects] | None = None
    build: Callable[[Objects], object] | None = None
    slots: Collection[str] = ()
    misfit: Callable[[], Objects] | None = None
    unsaveable: Callable[[], Objects] | None = None
    functional: bool = False

    def values(self, objects: Objects) -> dict[str, np.ndarray[Any, Any]]:
        """The values that ``read`` returns, as new arrays."""
        return {name: np.array(value) for name, value in self.read(objects).items()}

    def trained(self, objects: Objects) -> Objects:
        """The objects after ``train``."""
        return self.train(objects) or objects


def differences(found: Values, expected: Values) -> list[str]:
    """The names of values that differ in a bit, in element type or in shape, or that only one side has.

    Args:
        found: Some values.
        expected: The values that they should be.
    """
    return [
        name
        for name in sorted({*found, *expected})
        if name not in found or name not in expected or not _is_same(found[name], expected[name])
    ]


def _is_same(one: ArrayLike, other: ArrayLike) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    return first.tolist() == second.tolist() if first.dtype.hasobject else first.tobytes() == second.tobytes()
