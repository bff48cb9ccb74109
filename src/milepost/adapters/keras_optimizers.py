"""How the state of an optimizer of one class is named in each generation of Keras.

Since Keras 2.11 the state is in named lists, with one member for each variable. Before, it was in slot variables.
Hyperparameters were variables before Keras 2.11, and are plain numbers since. Each such number appears as an object with one value,
so that checkpoints of the older optimizers restore it, and checkpoints for them hold it.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from milepost.errors import MismatchError, UnrestoredWarning, warn
from milepost.facts import Fact
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType

_FLOAT32: Final = DType.of("float32")
_LIBRARIES: Final = ("keras", "tf_keras")
_SLOTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Adadelta": {"accum_grad": "_accumulated_grads", "accum_var": "_accumulated_delta_vars"},
    "Adagrad": {"accumulator": "_accumulators"},
    "Adam": {"m": "_momentums", "v": "_velocities", "vhat": "_velocity_hats"},
    "Adamax": {"m": "_m", "v": "_u"},
    "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
    "Nadam": {},
    "RMSprop": {"rms": "_velocities", "momentum": "_momentums", "mg": "_average_gradients"},
    "SGD": {"momentum": "momentums"},
}
"""Slot names of optimizers before Keras 2.11, each with the list in which later optimizers keep the same state.

``Nadam`` has none, because the schedule of its momentum has changed since.
"""
LISTS: Final[Mapping[str, Collection[str]]] = {
    "Adadelta": ("_accumulated_grads", "_accumulated_delta_vars"),
    "Adagrad": ("_accumulators",),
    "Adam": ("_momentums", "_velocities", "_velocity_hats"),
    "AdamW": ("_momentums", "_velocities", "_velocity_hats"),
    "Adamax": ("_m", "_u"),
    "Ftrl": ("_accumulators", "_linears"),
    "Lamb": ("_momentums", "_velocities"),
    "Lion": ("_momentums",),
    "Nadam": ("_momentums", "_velocities"),
    "RMSprop": ("_velocities", "_momentums", "_average_gradients"),
    "SGD": ("momentums",),
    "ScheduleFreeAdamW": ("_momentums", "_velocities"),
}
"""The lists that Keras assigns as a whole, so that TensorFlow tracks them."""
_MARKS: Final = {"Adafactor": {"_r", "_c"}, "Lion": {"momentums"}, "Nadam": {"_u_product"}}
"""Other edges that identify the class of a saved optimizer."""
_ALL_MARKS: Final = frozenset().union(*LISTS.values(), *_MARKS.values())
_FLAT: Final = ("_variables", "_trainable_variables")
ALIASES: Final[Mapping[str, str]] = {
    "iter": "_iterations",
    "learning_rate": "_learning_rate",
    "momentum_cache": "_u_product",
}
"""Names of the variables of optimizers before Keras 2.11 that are no slot variables, each with its later name."""
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Adadelta": ("rho",),
    "Adam": ("beta_1", "beta_2"),
    "Adamax": ("beta_1", "beta_2"),
    "Ftrl": ("beta", "learning_rate_power", "l1_regularization_strength", "l2_regularization_strength"),
    "Nadam": ("beta_1", "beta_2"),
    "RMSprop": ("rho", "momentum"),
    "SGD": ("momentum",),
}
_made: Final[Fact[dict[str, KerasHyperparameter]]] = Fact()


class KerasHyperparameter:
    """A number that an optimizer holds in an attribute. ``decay``, which optimizers since Keras 2.11 lack, is always 0."""

    def __init__(self, optimizer: Any, name: str) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.name = name

    def get(self) -> Array:
        value = 0.0 if self.name == "decay" else getattr(self._optimizer(), self.name)
        return np.array(value, np.float32)

    def set(self, value: Array) -> None:
        if value == self.get():
            return  # keeps the digits of a number that float32 rounds
        if self.name == "decay":
            warn(
                f"the saved optimizer decays its learning rate by {float(value)} a step, and optimizers of Keras 2.11 and later "
                "have no such setting: make the live optimizer with a keras.optimizers.schedules.InverseTimeDecay",
                UnrestoredWarning,
            )
        else:
            setattr(self._optimizer(), self.name, float(value))


class KerasHyperparameterAdapter(Adapter):
    """`KerasHyperparameter`."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, KerasHyperparameter)

    def values(self, obj: KerasHyperparameter) -> Sequence[Value]:
        return (Value(VARIABLE_VALUE, _FLOAT32, (), obj.get),)

    def assign(self, obj: KerasHyperparameter, arrays: Mapping[str, Array]) -> KerasHyperparameter:
        obj.set(arrays[VARIABLE_VALUE])
        return obj


def hyperparameters(optimizer: Any) -> dict[str, KerasHyperparameter]:
    """The hyperparameters that the optimizer of this class before Keras 2.11 keeps in variables, by name."""
    names = of_class(_NAMES, optimizer) or ()
    made = _made.get(optimizer)
    if made is None:
        made = _made[optimizer] = {}
    for name in ("decay", *names):
        if name not in made:
            made[name] = KerasHyperparameter(optimizer, name)
    return made


def slot_lists(optimizer: Any) -> Mapping[str, str]:
    """The lists of an optimizer, by the slot names that the optimizer of this class before Keras 2.11 has for the same state."""
    return of_class(_SLOTS, optimizer) or {}


def of_another_class(optimizer: Any, saved: Collection[str]) -> Collection[str]:
    """The saved edges of an optimizer's lists, and its flat lists, if these edges show that it is of another class; otherwise empty.

    Args:
        optimizer: The live optimizer.
        saved: The names of the saved optimizer's edges.
    """
    lists = of_class(LISTS, optimizer)
    if lists is None:
        return ()
    marks = _ALL_MARKS & set(saved)
    if marks <= {*lists, *(of_class(_MARKS, optimizer) or ())}:
        return ()
    return (*marks, *_FLAT)


def warn_of_another_class(optimizer: Any, marks: Collection[str]) -> None:
    """Warns that the lists of an optimizer of another class are not restored.

    Args:
        optimizer: The live optimizer.
        marks: The result of `of_another_class`.
    """
    kind = type(optimizer).__name__
    listed = ", ".join(sorted(set(marks) - set(_FLAT)))
    warn(
        f"the saved optimizer is of a different class than the live {kind}, so its step counter and learning rate are restored, and "
        f"its lists ({listed}) are not: restore into an optimizer of the saved class, or leave the optimizer out of what is "
        "restored",
        UnrestoredWarning,
    )


def refuse_slot(optimizer: Any, name: str) -> None:
    """Checks that an optimizer has a list for a slot variable that an optimizer before Keras 2.11 saved.

    Args:
        optimizer: A live optimizer of Keras 2.11 or later.
        name: The slot's name.

    Raises:
        MismatchError: The live optimizer has no such list.
    """
    slots = of_class(_SLOTS, optimizer)
    if slots is None or name in slots:
        return
    kind = type(optimizer).__name__
    raise MismatchError(
        "the saved optimizer is from a Keras before 2.11, and its class is another one or computed its steps differently; "
        "nothing was changed",
        expected=f"the state of a {kind} of Keras 2.11 or later" + (", or of an older one" if slots else ""),
        found=f"a slot variable {name!r}",
        remedy="restore into an optimizer of the saved class from tf_keras.optimizers.legacy, or leave the optimizer out of what "
        "is restored",
    )


def of_class(table: Mapping[str, Any], optimizer: Any) -> Any:
    """The entry of a table for the nearest class of Keras that an optimizer is derived from, or None."""
    for base in type(optimizer).__mro__:
        if base.__name__ in table and base.__module__.partition(".")[0] in _LIBRARIES:
            return table[base.__name__]
    return None


register(KerasHyperparameterAdapter())
