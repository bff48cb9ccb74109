"""Hyperparameters, which the oldest optimizers of Keras keep in variables and Keras 3 keeps as plain numbers.

Each appears as an object with one value, so that a checkpoint of the oldest optimizers restores them, and one for these
optimizers holds them.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from milepost.errors import UnrestoredWarning, warn
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType

_FLOAT32: Final = DType.of("float32")
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Adadelta": ("rho",),
    "Adam": ("beta_1", "beta_2"),
    "Adamax": ("beta_1", "beta_2"),
    "Ftrl": ("beta", "learning_rate_power", "l1_regularization_strength", "l2_regularization_strength"),
    "Nadam": ("beta_1", "beta_2"),
    "RMSprop": ("rho", "momentum"),
    "SGD": ("momentum",),
}
_made: Final[weakref.WeakKeyDictionary[Any, dict[str, Hyperparameter]]] = weakref.WeakKeyDictionary()


class Hyperparameter:
    """A number that an optimizer holds in an attribute; ``decay``, which Keras 3 does not know, is always 0."""

    def __init__(self, optimizer: Any, name: str) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.name = name

    def get(self) -> Array:
        value = 0.0 if self.name == "decay" else getattr(self._optimizer(), self.name)
        return np.array(value, np.float32)

    def set(self, value: Array) -> None:
        if value == self.get():
            return  # so that a number that float32 rounds keeps its digits
        if self.name == "decay":
            warn(
                f"the saved optimizer decays its learning rate by {float(value)} a step, which optimizers of Keras 3 "
                "do not do by themselves: give it keras.optimizers.schedules.InverseTimeDecay",
                UnrestoredWarning,
            )
        else:
            setattr(self._optimizer(), self.name, float(value))


class HyperparameterAdapter(Adapter):
    """`Hyperparameter`."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Hyperparameter)

    def values(self, obj: Hyperparameter) -> Sequence[Value]:
        return (Value(VARIABLE_VALUE, _FLOAT32, (), obj.get),)

    def assign(self, obj: Hyperparameter, arrays: Mapping[str, Array]) -> Hyperparameter:
        obj.set(arrays[VARIABLE_VALUE])
        return obj


def hyperparameters(optimizer: Any) -> dict[str, Hyperparameter]:
    """Those that the oldest optimizer of the same name keeps in variables, by name."""
    names = next(
        (_NAMES[base.__name__] for base in type(optimizer).__mro__ if base.__name__ in _NAMES),
        (),
    )
    made = _made.setdefault(optimizer, {})
    for name in ("decay", *names):
        if name not in made:
            made[name] = Hyperparameter(optimizer, name)
    return made


register(HyperparameterAdapter())
