"""Layers, metrics, losses, seed generators, learning-rate schedules: objects that hold state in attributes.

An attribute such as ``_kernel``, which is ``kernel`` in Keras 2, has both names in checkpoints. So both generations find it, and
its key is the name that users expect.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from milepost.adapters.keras.attributes import attributes
from milepost.adapters.keras.backends import backend
from milepost.adapters.keras.collections import watch_empty
from milepost.adapters.keras.hooks import HookedAdapter, hook, watch_resets
from milepost.adapters.keras.own_state import assign_own_state, own_state
from milepost.adapters.keras.private import (
    KerasSaveable,
    Layer,
    LearningRateSchedule,
    Normalization,
    SeedGenerator,
    Variable,
)
from milepost.graph.adapter import Array, Value, register
from milepost.graph.omissions import Accounted

_COMPILED: Final = frozenset({"_loss_tracker", "_compile_metrics", "_compile_loss"})
_OLD_NAMES: Final = {
    "DepthwiseConv1D": {"kernel": "depthwise_kernel"},
    "DepthwiseConv2D": {"kernel": "depthwise_kernel"},
    "Normalization": {"adapt_mean": "mean", "adapt_variance": "variance"},
}
"""For classes of layers: attributes whose name in Keras 2 differs by more than an underscore."""
_REMEDY: Final = "hold it in an attribute, or in a list or dict in an attribute"


class AccountedAdapter(HookedAdapter):
    """Objects that Keras saves by their variables, or by methods of their own."""

    def values(self, obj: Any) -> Sequence[Value]:
        return own_state(obj)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        if assign_own_state(obj, arrays):
            hook(obj)
        return obj

    def account(self, obj: Any) -> Iterable[Accounted]:
        return account_of_variables(obj)


class ObjectAdapter(AccountedAdapter):
    """Any Keras object: its attributes are its edges."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (KerasSaveable, SeedGenerator, LearningRateSchedule))

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        return attributes(obj)

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        # TensorFlow does not track seed generators in attributes.
        names = [name for name, value in attributes(obj) if isinstance(value, SeedGenerator)]
        return [*names, "_seed_generators"]

    def on_deferred(self, obj: Any) -> None:
        super().on_deferred(obj)
        watch_empty(obj)


class KerasLayerAdapter(ObjectAdapter):
    """Layers and subclassed models."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Layer)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        if getattr(obj, "_jax_state_synced", True) is False:
            obj.jax_state_sync()  # while fit() runs on JAX, the trainer holds the values
        pairs = list(attributes(obj))
        names = {name for name, _ in pairs}
        kind: Any = type(obj)
        old_names = _old_names(kind)
        for name, value in pairs:
            old = old_names.get(name)
            if old is None and name.startswith("_") and hasattr(kind, name[1:]):
                old = name[1:]
            if old is not None and isinstance(value, Variable) and old not in names:
                yield old, value
            yield name, value

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        return [*super().skipped_by_tensorflow(obj), *_COMPILED]

    def frozen(self, obj: Any) -> Collection[Any]:
        return [each for each in obj._trainable_variables if not each.trainable]

    def on_restored(self, obj: Any) -> None:
        watch_resets(obj)


class KerasNormalizationAdapter(KerasLayerAdapter):
    """`keras.layers.Normalization`, which computes constants from its variables."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Normalization)

    def on_restored(self, obj: Any) -> None:
        if obj.built and obj.input_mean is None:
            with backend.eagerly():
                obj.finalize_state()


def account_of_variables(obj: Any) -> list[Accounted]:
    """The variables in an object's ``variables``, in whatever attribute the object holds them."""
    try:
        variables = list(getattr(obj, "variables", ()))
    except Exception:  # some objects raise errors before they are built; Keras does not ask them either
        if getattr(obj, "built", True):
            raise
        return []
    return [Accounted((each.name,), each, remedy=_REMEDY, anywhere=True) for each in variables]


@functools.lru_cache(maxsize=1024)
def _old_names(kind: type) -> dict[str, str]:
    for base in kind.__mro__:
        if base.__name__ in _OLD_NAMES and base.__module__.startswith("keras."):
            return _OLD_NAMES[base.__name__]
    return {}


for _adapter in (ObjectAdapter(), KerasLayerAdapter(), KerasNormalizationAdapter()):
    register(_adapter)
