"""Optimizers of TensorFlow 1 and Keras 2.

Optimizers before Keras 2.11 keep their state in slot variables. Later ones keep it in named lists, and also in the flat list
``_variables``. The lists of Keras 3 have the same names, but its flat list has another order, so a file with the flat list fits one
generation only. The flat list is left out if the named lists hold everything. Slot variables that an older optimizer of the same
class has saved are restored into the lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

from milepost.adapters.counters import has_counted
from milepost.adapters.keras_optimizers import (
    ALIASES,
    hyperparameters,
    of_another_class,
    refuse_slot,
    slot_lists,
    warn_of_another_class,
)
from milepost.adapters.tensorflow.hooks import hook_build, tracked_for
from milepost.adapters.tensorflow.kinds import is_keras_2
from milepost.adapters.tensorflow.layers import account_of_variables
from milepost.adapters.tensorflow.private import AutoTrackable
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.errors import UnrestoredWarning, warn
from milepost.graph.omissions import Accounted
from milepost.graph.traversal import reachable
from milepost.tensor import TensorSpec

_FLAT: Final = ("_variables", "_index_dict")
_ITERATIONS: Final = "_iterations"
_OLD_ITERATIONS: Final = "iter"
_PRODUCTS: Final = "_u_product_counter"
_KERAS_3_ONLY: Final = "_trainable_variables"


class SlotOptimizerAdapter(TrackableAdapter):
    """Optimizers that make slot variables."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and hasattr(kind, "_create_or_restore_slot_variable") and hasattr(kind, "get_slot")

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        if _ITERATIONS in saved and _OLD_ITERATIONS not in saved:
            warn(
                f"the saved optimizer is of Keras 2.11 or later, so nothing of it is restored into the older live "
                f"{type(obj).__name__}: restore into an optimizer of tf_keras.optimizers, or leave the optimizer out of what is "
                "restored",
                UnrestoredWarning,
            )
        return super().unwanted(obj, saved)

    def has_stepped(self, obj: Any) -> bool:
        if not tf.executing_eagerly():
            return False  # a graph has made all state before it was saved
        optimizer = tracked_for(obj)
        iterations = getattr(optimizer, "_iterations", None)
        return bool(optimizer._slots) if iterations is None else has_counted(iterations)

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        with tf.init_scope():
            if not tf.executing_eagerly() or _is_variable_creation_watched():
                return None  # the graph or the optimizer makes it later, and it is restored then
            if isinstance(obj, tf.compat.v1.train.Optimizer):
                return obj._zeros_slot(variable, name, obj._name)
            return obj.add_slot(variable, name)

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        optimizer = tracked_for(obj)
        slot = obj.get_slot(variable, name)
        for slots in optimizer._slots.values():
            for key in [key for key, each in slots.items() if each is slot]:
                del slots[key]
        weights = getattr(optimizer, "_weights", [])
        weights[:] = [weight for weight in weights if weight is not slot]


def _is_variable_creation_watched() -> bool:
    """Whether a scope, such as that of a template, would capture a slot variable that is made now as a variable of its own.

    Scopes of distribution strategies do not count, since they apply to slot variables too.
    """
    return bool(tf.compat.v1.get_default_graph()._variable_creator_stack) and not tf.distribute.has_strategy()


class ListOptimizerAdapter(TrackableAdapter):
    """Optimizers since Keras 2.11."""

    slots_are_children = True

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "_BaseOptimizer")

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        optimizer = tracked_for(obj)
        if any(hasattr(variable, "_sharded_container") for variable in optimizer._variables):
            return super().children(obj)
        with tf.init_scope():  # the optimizer's own method returns what it held at the first call
            children: Mapping[str, Any] = AutoTrackable._trackable_children(optimizer, "checkpoint")
        named = [pair for pair in children.items() if pair[0] not in _FLAT]
        identities = {id(each) for _, child in named for each in reachable(child)}
        return named if all(id(variable) in identities for variable in optimizer._variables) else list(children.items())

    def account(self, obj: Any) -> Iterable[Accounted]:
        return account_of_variables(tracked_for(obj), "_variables")

    def stand_ins(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        yield from hyperparameters(tracked_for(obj)).items()
        if _KERAS_3_ONLY not in saved and not of_another_class(tracked_for(obj), saved):
            yield "_variables", tracked_for(obj)._variables

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        optimizer = tracked_for(obj)
        if others := of_another_class(optimizer, saved):
            warn_of_another_class(optimizer, others)
            return others
        return ("_variables", _KERAS_3_ONLY) if _KERAS_3_ONLY in saved else ()

    def aliases(self, obj: Any) -> Mapping[str, str]:
        return ALIASES

    def has_slots(self, obj: Any) -> bool:
        return True

    def has_stepped(self, obj: Any) -> bool:
        return tf.executing_eagerly() and has_counted(tracked_for(obj).iterations)

    def slot_names(self, obj: Any) -> Sequence[str]:
        return ()

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        optimizer = tracked_for(obj)
        slots = getattr(optimizer, slot_lists(optimizer).get(name, ""), ())
        number = getattr(optimizer, "_index_dict", {}).get(optimizer._var_key(variable))
        return slots[number] if number is not None and number < len(slots) else None

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        refuse_slot(tracked_for(obj), name)
        return None  # the optimizer makes it when it is built

    def on_restored(self, obj: Any) -> None:
        # Nadam has a second counter of steps, which is not saved, and updates its product in each step in which the two differ.
        optimizer = tracked_for(obj)
        if hasattr(optimizer, _PRODUCTS) and tf.executing_eagerly():
            setattr(optimizer, _PRODUCTS, int(optimizer.iterations) + 1)

    def on_deferred(self, obj: Any) -> None:
        super().on_deferred(obj)
        hook_build(obj)
