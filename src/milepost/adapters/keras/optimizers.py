"""Optimizers: per-variable state in named lists, one element for each trainable variable.

Which edges are written decides who can read them:

- the named lists (``_momentums``, ``_velocities``, ...), ``_iterations`` and ``_learning_rate`` are what Keras 3 and
  Keras 2.11 and later agree on;
- ``_variables``, a list of everything, has another order in each generation, so it holds only what TensorFlow reaches by
  no other name: lists that are filled by ``append``, or assigned while tracking is off;
- slot variables and hyperparameters are for older optimizers, and on request, because those of Keras 2.11 and later
  refuse files that have them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from milepost.adapters.keras.attributes import attributes
from milepost.adapters.keras.hyperparameters import hyperparameters
from milepost.adapters.keras.layers import AccountedAdapter
from milepost.adapters.keras.private import BaseOptimizer, LossScaleOptimizer
from milepost.graph.adapter import register, saving_legacy_slots
from milepost.graph.waiting import waiting_on

_UNTRACKED_LISTS: Final = frozenset({"_model_variables_moving_average", "_accumulated_gradients"})
_WHOLE_LISTS: Final = {
    "Adadelta": ("_accumulated_grads", "_accumulated_delta_vars"),
    "Adagrad": ("_accumulators",),
    "Adam": ("_momentums", "_velocities", "_velocity_hats"),
    "Adamax": ("_m", "_u"),
    "Ftrl": ("_accumulators", "_linears"),
    "Lamb": ("_momentums", "_velocities"),
    "Lion": ("_momentums",),
    "Nadam": ("_momentums", "_velocities"),
    "RMSprop": ("_velocities", "_momentums", "_average_gradients"),
    "SGD": ("momentums",),
    "ScheduleFreeAdamW": ("_momentums", "_velocities"),
}
"""Lists that Keras assigns whole, so that TensorFlow tracks them."""
_SLOTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Adadelta": {"accum_grad": "_accumulated_grads", "accum_var": "_accumulated_delta_vars"},
    "Adagrad": {"accumulator": "_accumulators"},
    "Adam": {"m": "_momentums", "v": "_velocities", "vhat": "_velocity_hats"},
    "Adamax": {"m": "_m", "v": "_u"},
    "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
    "Nadam": {"m": "_momentums", "v": "_velocities"},
    "RMSprop": {"rms": "_velocities", "momentum": "_momentums", "mg": "_average_gradients"},
    "SGD": {"momentum": "momentums"},
}
"""Slot names of the oldest optimizers, and the list in which Keras 3 keeps the same state."""


class OptimizerAdapter(AccountedAdapter):
    """Every optimizer of Keras 3, and those that users derive from them."""

    slots_are_children = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, BaseOptimizer)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        found = [(name, value) for name, value in attributes(obj) if not name.startswith("_trainable_variables")]
        yield from found
        if saving_legacy_slots.get():
            yield from _legacy_children(obj)
        hidden = _only_in_flat_list(obj, found)
        if hidden:
            yield "_variables", hidden

    def stand_ins(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        yield from hyperparameters(obj).items()
        if obj.built:
            yield "_variables", obj._variables

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        # Keras 2 numbers its flat list otherwise, and all of it has other names too.
        return ("_variables",) if "_index_dict" in saved else ()

    def aliases(self, obj: Any) -> Mapping[str, str]:
        return {"iter": "_iterations", "learning_rate": "_learning_rate", "momentum_cache": "_u_product"}

    def has_slots(self, obj: Any) -> bool:
        return True

    def slot_names(self, obj: Any) -> Sequence[str]:
        return list(_known(_SLOTS, obj)) if saving_legacy_slots.get() else ()

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        slots = getattr(obj, _known(_SLOTS, obj).get(name, name), None)
        if not isinstance(slots, list) or not obj.built:
            return None
        for number, own in enumerate(obj._trainable_variables):
            if own is variable:
                return slots[number] if number < len(slots) else None
        return None


class LossScaleOptimizerAdapter(OptimizerAdapter):
    """`keras.optimizers.LossScaleOptimizer`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, LossScaleOptimizer)

    def watch(self, obj: Any) -> None:
        super().watch(obj)
        positions = waiting_on(obj).get("dynamic_scale")
        if positions and not obj.built:
            # It scales the first loss before it is built, and must do so by the number that it will divide by.
            scale = max(positions, key=lambda position: position.uid).peek()
            if scale is not None:
                obj.initial_scale = float(scale)


def _known(table: Mapping[str, Any], obj: Any) -> Any:
    """What a table says of the nearest class of Keras that an optimizer is derived from."""
    for base in type(obj).__mro__:
        if base.__name__ in table and base.__module__.startswith("keras."):
            return table[base.__name__]
    return {}


def _only_in_flat_list(obj: Any, found: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    whole = set(_known(_WHOLE_LISTS, obj)) - _UNTRACKED_LISTS
    reached = set()
    for name, value in found:
        if name in whole:
            reached |= {id(variable) for variable in value}
        elif not isinstance(value, (list, tuple, dict)):
            reached.add(id(value))
    return {str(number): each for number, each in enumerate(obj._variables) if id(each) not in reached}


def _legacy_children(obj: Any) -> Iterable[tuple[str, Any]]:
    yield "iter", obj._iterations
    yield "learning_rate", obj._learning_rate
    yield from hyperparameters(obj).items()


register(OptimizerAdapter())
register(LossScaleOptimizerAdapter())
