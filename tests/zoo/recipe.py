"""How to make one object of a class of Keras and use it, so that it can be trained, saved and restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

keras: Any = pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")


def _grid(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Numbers that look random, and are the same everywhere."""
    angles = np.sin(np.arange(1, np.prod(shape) + 1) * 12.9898) * 43758.5453
    numbers: np.ndarray = (low + (high - low) * (angles - np.floor(angles))).astype("float32")
    return numbers.reshape(shape)


VECTOR = _grid(4, 6)
SEQUENCE = _grid(2, 6, 4)
LONG_SEQUENCE = _grid(2, 32, 2)
SMALL_IMAGE = _grid(2, 6, 6, 2)
IMAGE = _grid(2, 8, 8, 3, low=0, high=255)
VOLUME = _grid(2, 4, 4, 4, 2)
FILM = _grid(2, 3, 6, 6, 2)
TOKENS = np.array([[1, 2, 3, 0, 5], [5, 4, 3, 2, 1]], "int32")
WORDS = np.array([["tide"], ["mast"], ["tide"], ["sail"]], object)
OTHER_WORDS = np.array([["oar"], ["rope"], ["rope"], ["tar"]], object)


@dataclass(frozen=True)
class Recipe:
    """A way to make and use an object.

    Attributes:
        make: Makes a fresh one, unbuilt wherever Keras allows it.
        inputs: What it is called with; for a metric, the arguments of three updates.
        variant: What distinguishes this recipe from others of the same class.
        trains: Whether its calls take ``training``.
        adapt: Gives a layer state that no call gives it, as ``adapt()`` does; called with the layer and whether this is
            the one that is saved, so that others have another state.
        then: What is done to the layer after its first call, such as enabling LoRA.
        then_first: Whether that must come before restoring, because it changes what saved values fit; then there is
            nothing to defer.
        shifts: Which variables may be given arbitrary values, to make sure that they differ from their first.
        alone: Why it can be compared alone only, and not in a model.
        requires: A package without which Keras cannot make it.
    """

    make: Callable[[], Any]
    inputs: tuple[Any, ...]
    variant: str = ""
    trains: bool = False
    adapt: Callable[[Any, bool], None] | None = None
    then: Callable[[Any], None] | None = None
    then_first: bool = False
    shifts: Callable[[Any], bool] = lambda variable: True
    alone: str = ""
    requires: str = ""


def recipe(make: Callable[[], Any], *inputs: Any, variant: str = "", **settings: Any) -> Recipe:
    """A `Recipe`, with its inputs as arguments."""
    return Recipe(make, inputs, variant, **settings)


def of(module: Any, name: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """A function that makes an object of a class, which is looked up by name."""
    return lambda: getattr(module, name)(*arguments, **options)
