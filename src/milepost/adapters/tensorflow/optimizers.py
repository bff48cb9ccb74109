"""Optimizers of TensorFlow 1 and Keras 2.

The oldest keep their state in slot variables. Those since Keras 2.11 keep it in lists with names, and once more in the
flat list ``_variables``. Keras 3 has lists of the same names but orders the flat one otherwise, so that files with the
flat list are for one generation only; it is left out where the named lists hold everything. What the oldest have saved in
slot variables is given to these lists, where the class is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

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
                f"an optimizer of Keras 2.11 or later was saved, of which the older live {type(obj).__name__} takes nothing: "
                "restore into one of the newer optimizers, which tf_keras.optimizers has, or leave the optimizer out of what is "
                "restored",
                UnrestoredWarning,
            )
        return super().unwanted(obj, saved)

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        with tf.init_scope():
            if not tf.executing_eagerly() or _is_variable_creation_watched():
                return None  # made when the graph is, or by the optimizer itself; its value is given then
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
    """Whether somebody, such as a template, would take a slot variable that is made now for one of its own.

    Scopes of strategies are meant for slot variables too.
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
        with tf.init_scope():  # what the optimizer itself returns is what it had when it was first asked
            children: Mapping[str, Any] = AutoTrackable._trackable_children(optimizer, "checkpoint")
        named = [pair for pair in children.items() if pair[0] not in _FLAT]
        found = {id(each) for _, child in named for each in reachable(child)}
        return named if all(id(variable) in found for variable in optimizer._variables) else list(children.items())

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
        # Nadam counts its steps twice, and multiplies its product again in each step in which the two differ.
        optimizer = tracked_for(obj)
        if hasattr(optimizer, _PRODUCTS) and tf.executing_eagerly():
            setattr(optimizer, _PRODUCTS, int(optimizer.iterations) + 1)

    def on_deferred(self, obj: Any) -> None:
        super().on_deferred(obj)
        hook_build(obj)
