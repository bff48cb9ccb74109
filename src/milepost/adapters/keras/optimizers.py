"""Optimizers: per-variable state in named lists, one element for each trainable variable.

The edges that are written decide which versions of Keras can read them:

- The named lists (``_momentums``, ``_velocities``, ...), ``_iterations`` and ``_learning_rate`` are common to Keras 3 and to Keras
  2.11 and later.
- ``_variables``, a list of all variables, has another order in each generation. So it holds only the variables that TensorFlow finds
  under no other name: those in lists that are filled by ``append``, or assigned while tracking is off.
- Slot variables and hyperparameters are for optimizers before Keras 2.11. They are written on request only, because later
  optimizers refuse files that have them.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from milepost.adapters.counters import has_counted
from milepost.adapters.keras.attributes import attributes
from milepost.adapters.keras.layers import AccountedAdapter
from milepost.adapters.keras.private import BaseOptimizer, LossScaleOptimizer
from milepost.adapters.keras_optimizers import (
    ALIASES,
    LISTS,
    hyperparameters,
    of_another_class,
    of_class,
    refuse_slot,
    slot_lists,
    warn_of_another_class,
)
from milepost.deferred.table import deferred_on
from milepost.graph.adapter import register
from milepost.graph.contract.operation import Operation
from milepost.tensor import TensorSpec

_UNTRACKED_LISTS: Final = frozenset({"_model_variables_moving_average", "_accumulated_gradients"})


class KerasOptimizerAdapter(AccountedAdapter):
    """Every optimizer of Keras 3, and those that users derive from them."""

    slots_are_children = True
    _is_legacy = False
    """Whether a save is for the oldest optimizers of Keras."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, BaseOptimizer)

    def during(self, operation: Operation) -> Self:
        if operation.options is None or not operation.options.legacy_keras_optimizers:
            return self
        adapter = copy.copy(self)
        adapter._is_legacy = True
        return adapter

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        pairs = [(name, value) for name, value in attributes(obj) if not name.startswith("_trainable_variables")]
        yield from pairs
        if self._is_legacy:
            yield from _legacy_children(obj)
        hidden = _only_in_flat_list(obj, pairs)
        if hidden:
            yield "_variables", hidden

    def stand_ins(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        yield from hyperparameters(obj).items()
        if obj.built and not of_another_class(obj, saved):
            yield "_variables", obj._variables

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        if others := of_another_class(obj, saved):
            warn_of_another_class(obj, others)
            return others
        # Keras 2 has another order in its flat list, and saves everything in it under other names too.
        return ("_variables",) if "_index_dict" in saved else ()

    def aliases(self, obj: Any) -> Mapping[str, str]:
        return ALIASES

    def has_slots(self, obj: Any) -> bool:
        return True

    def has_stepped(self, obj: Any) -> bool:
        counting = obj
        while isinstance(counting, LossScaleOptimizer):
            counting = counting.inner_optimizer
        # not `iterations`, which is no variable if gradients are accumulated
        return bool(obj.built) and has_counted(counting._iterations)

    def slot_names(self, obj: Any) -> Sequence[str]:
        return list(slot_lists(obj)) if self._is_legacy else ()

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        slots = getattr(obj, slot_lists(obj).get(name, name), None)
        if not isinstance(slots, list) or not obj.built:
            return None
        for number, trained in enumerate(obj._trainable_variables):
            if trained is variable:
                return slots[number] if number < len(slots) else None
        return None

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        if not hasattr(obj, name):
            refuse_slot(obj, name)
        return None


class LossScaleOptimizerAdapter(KerasOptimizerAdapter):
    """`keras.optimizers.LossScaleOptimizer`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, LossScaleOptimizer)

    def on_deferred(self, obj: Any) -> None:
        super().on_deferred(obj)
        positions = deferred_on(obj).get("dynamic_scale")
        if positions and not obj.built:
            # It scales the first loss before it is built, and divides by the restored scale after that: both must be equal.
            scale = max(positions, key=lambda position: position.uid).peek()
            if scale is not None:
                obj.initial_scale = float(scale)


def _only_in_flat_list(obj: Any, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    whole = set(of_class(LISTS, obj) or ()) - _UNTRACKED_LISTS
    reached = set()
    for name, value in pairs:
        if name in whole:
            reached |= {id(variable) for variable in value}
        elif not isinstance(value, (list, tuple, dict)):
            reached.add(id(value))
    return {str(number): each for number, each in enumerate(obj._variables) if id(each) not in reached}


def _legacy_children(obj: Any) -> Iterable[tuple[str, Any]]:
    yield "iter", obj._iterations
    yield "learning_rate", obj._learning_rate
    yield from hyperparameters(obj).items()


register(KerasOptimizerAdapter())
register(LossScaleOptimizerAdapter())
