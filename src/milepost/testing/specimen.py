"""Objects of a framework that its adapters are tested with, and how they are made, trained and read without milepost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Objects = Mapping[str, Any]
"""Objects of a framework by the names under which a checkpoint holds them."""
Values = Mapping[str, ArrayLike]
"""All values of such objects, under names of the specimen's choice."""


@dataclass(frozen=True, slots=True)
class Specimen:
    """Objects to test adapters with. Equal seeds must give equal objects, and different seeds must differ in every value.

    Attributes:
        make: Makes objects from a seed, complete: layers have been called, optimizers have taken a step. The objects are
            given to `Checkpoint` under their names; the first is the one that is copied and pickled with the others.
        read: Returns all values of such objects that a checkpoint must hold, without milepost: as copies, and only those that exist.
        train: Changes every value as a program does. Returns the new objects if these are others, as with trees of JAX.
        unbuilt: Makes the same objects from a seed before their late children and slot variables exist.
        build: Makes these exist, as a program does, with the same values each time, and changes no other value.
        slots: Names in what ``read`` returns that are slot variables.
        misfit: Makes the same objects with one value of another shape or element type.
        unsaveable: Makes objects with something in them that no checkpoint can hold, so that a save must fail.
        functional: Whether the values cannot change, so that a restore puts other objects in their place.

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
        """What ``read`` returns, as arrays that nobody else changes."""
        return {name: np.array(value) for name, value in self.read(objects).items()}

    def trained(self, objects: Objects) -> Objects:
        """The objects after ``train``."""
        return self.train(objects) or objects


def differences(found: Values, expected: Values) -> list[str]:
    """Names of the values that are not the same: bit for bit, with element type and shape.

    Args:
        found: Some values.
        expected: What they should be.
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
