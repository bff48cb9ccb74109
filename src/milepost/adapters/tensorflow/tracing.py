"""Writes a checkpoint in each run of a traced function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from milepost.adapters.tensorflow import session
from milepost.adapters.tensorflow.tensors import to_array
from milepost.errors import UnsupportedError
from milepost.storage.paths import plain_path


def write_in_every_run(write: Callable[[Any, session.Use | None], str], path: Any, objects: Iterable[Any]) -> Any:
    """Adds an operation that writes a checkpoint to the function that is being traced.

    The operation runs after the operations before it that change the variables, and before those after it.

    Args:
        write: Writes a checkpoint under a path, with the values of variables of a graph. It is called in every run of the function.
        path: The path, or a tensor that holds it.
        objects: All objects that are saved.

    Returns:
        A tensor of the path.

    Raises:
        UnsupportedError: The function runs in each replica of a strategy, or one of the objects is a reference variable.
    """
    if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
        raise UnsupportedError(
            "a checkpoint cannot be written in a tf.function that runs in each replica",
            remedy="call write() after the function has returned",
        )
    objects = list(objects)
    variables = session.graph_variables(objects)
    for variable in variables:
        if not hasattr(variable, "handle"):
            raise UnsupportedError(
                "a tf.function cannot read this variable, so it cannot write it to a checkpoint",
                key=variable.op.name,
                expected="a resource variable",
                found="a reference variable",
                remedy="make it with use_resource=True, or call write() outside of the function",
            )
    handles = [handle for obj in objects if (handle := _handle(obj)) is not None] if not variables else []

    def run(tensor: Any, *arguments: Any) -> str:
        if not variables:
            return write(tensor, None)
        return write(tensor, session.Use(None, variables, [to_array(value) for value in arguments]))

    prefix = path if tf.is_tensor(path) else tf.constant(plain_path(path))
    # By the handles TensorFlow knows which variables are read. Variables of a graph are read here, in the session that runs it.
    read = [variable.read_value() for variable in variables]
    written = tf.py_function(run, [prefix, *handles, *read], tf.string)
    return tf.ensure_shape(written, ())


def _handle(obj: Any) -> Any:
    variable = obj if isinstance(obj, tf.Variable) else getattr(obj, "value", None)
    if not isinstance(variable, tf.Variable):
        return None
    try:
        return variable.handle
    except (AttributeError, ValueError):  # a reference variable, or one in each replica
        return None
