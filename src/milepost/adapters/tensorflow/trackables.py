"""Objects that implement TensorFlow's tracking: `tf.Module`, `tf.train.Checkpoint`, iterators, tables, objects of Keras 2."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from milepost.adapters.attributes import watch_attributes
from milepost.adapters.tensorflow import serialization
from milepost.adapters.tensorflow.hooks import hook
from milepost.adapters.tensorflow.kinds import is_keras_2, is_of_keras_3
from milepost.adapters.tensorflow.private import Trackable
from milepost.adapters.tensorflow.session import InSession
from milepost.errors import UntrackableError
from milepost.graph.adapter import Array, Value, adapter_of_type
from milepost.graph.native import SlotAdapter
from milepost.graph.omissions import Accounted, Omission

_PLAIN: Final = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type, list, dict, OrderedDict, type(lambda: None)}
)
_CONTAINERS: Final = (list, dict, set, frozenset, deque)


class TrackableAdapter(InSession, SlotAdapter):
    """Objects whose children and values TensorFlow's own methods return."""

    def handles(self, kind: type) -> bool:
        if not issubclass(kind, Trackable) or issubclass(kind, tf.Variable):
            return False
        # a table of Keras 3 without a vocabulary has an initializer of a class of Keras, which no adapter of Keras knows
        return not is_of_keras_3(kind) or issubclass(kind, tf.lookup.KeyValueTensorInitializer)

    def tracks(self, obj: Any) -> bool:
        return not serialization.registered_saver(obj)

    def omission(self, obj: Any) -> Omission | None:
        saver = serialization.registered_saver(obj)
        reason = f"a {type(obj).__name__} has a saver of its own, {saver!r}, which writes other files"
        return Omission(reason) if saver else None

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        with tf.init_scope():  # some objects return other children while a function is traced
            try:
                children: Mapping[str, Any] = obj._trackable_children("checkpoint")
            except ValueError as error:
                raise UntrackableError(
                    f"TensorFlow cannot list the children of this {type(obj).__name__}",
                    found=str(error),
                    remedy="hold its members in a list or dict that is assigned to an attribute and then changed only there",
                ) from error
        return [*children.items(), *_untracked(obj)]

    def account(self, obj: Any) -> Iterable[Accounted]:
        # A trackable child without an adapter fails the save. One that has a saver of its own has its own omission.
        return [
            Accounted((name,), child, anywhere=True)
            for name, child in self.children(obj)
            if isinstance(child, Trackable) and adapter_of_type(type(child)) is None
        ]

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        return [name for name, _ in _untracked(obj)]

    def values(self, obj: Any) -> Sequence[Value]:
        return serialization.values(obj, self._use)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        serialization.assign(obj, arrays, self._use)
        return obj

    def on_deferred(self, obj: Any) -> None:
        hook(obj)
        watch_attributes(obj)


def _is_of_others(value: Any) -> bool:
    """Whether a value is an object of another library, which TensorFlow does not track. Arrays are settings, and do not count."""
    if isinstance(value, (Trackable, np.ndarray, np.generic, *_CONTAINERS, tuple)):
        return False
    return adapter_of_type(type(value)) is not None


def _untracked(obj: Any) -> list[tuple[str, Any]]:
    """Attributes that TensorFlow does not track: objects of other libraries, and containers that it does not know.

    The objects are saved, in a field that TensorFlow skips. A save reports the containers.
    """
    try:
        values_by_name = vars(obj)
    except TypeError:
        return []
    pairs = []
    for name, value in list(values_by_name.items()):
        kind = type(value)
        if kind in _PLAIN or name.startswith("_self_") or isinstance(value, (Trackable, np.ndarray, np.generic)):
            continue
        if isinstance(value, tuple) and not any(_is_of_others(member) for member in value):
            continue
        if adapter_of_type(kind) is not None or (isinstance(value, _CONTAINERS) and not is_keras_2(type(obj), "Layer")):
            pairs.append((name, value))
    return pairs
