"""Whatever implements TensorFlow's tracking: `tf.Module`, `tf.train.Checkpoint`, iterators, tables, objects of Keras 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from milepost.adapters.tensorflow import serialization
from milepost.adapters.tensorflow.hooks import hook
from milepost.adapters.tensorflow.kinds import is_of_keras_3
from milepost.errors import UntrackableError
from milepost.graph.adapter import Array, Value, register
from milepost.graph.native import SlotAdapter

Trackable: Any = tf.__internal__.tracking.Trackable


class TrackableAdapter(SlotAdapter):
    """Objects that name their children and values by TensorFlow's own methods."""

    conditional = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Trackable) and not issubclass(kind, tf.Variable) and not is_of_keras_3(kind)

    def tracks(self, obj: Any) -> bool:
        return not serialization.registered_saver(obj)

    def complaint(self, obj: Any) -> str | None:
        saver = serialization.registered_saver(obj)
        return f"a {type(obj).__name__} has a saver of its own, {saver!r}, which writes other files" if saver else None

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        with tf.init_scope():  # what some objects list depends on whether a function is being traced
            try:
                children: Mapping[str, Any] = obj._trackable_children("checkpoint")
            except ValueError as error:
                raise UntrackableError(str(error)) from error
        return list(children.items())

    def values(self, obj: Any) -> Sequence[Value]:
        return serialization.values(obj)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        serialization.assign(obj, arrays)
        return obj

    def watch(self, obj: Any) -> None:
        hook(obj)


register(TrackableAdapter())
