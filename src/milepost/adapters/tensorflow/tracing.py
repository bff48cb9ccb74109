"""Writing a checkpoint whenever a traced function runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from milepost.adapters.tensorflow import session
from milepost.adapters.tensorflow.tensors import to_array
from milepost.errors import UnsupportedError
from milepost.storage.paths import plain_path


def write_in_every_run(write: Callable[[Any], str], path: Any, objects: Iterable[Any]) -> Any:
    """Adds an operation to the function that is being traced, which writes a checkpoint.

    It comes after the operations that have changed the variables before, and before those that change them later.

    Args:
        write: Writes a checkpoint under a path; called in every run of the function.
        path: The path, or a tensor of it.
        objects: Everything that is saved.

    Returns:
        A tensor of the path.

    Raises:
        UnsupportedError: The function is traced for each replica of a strategy, or there are reference variables.
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
                "a tf.function cannot read this variable, so none can write it",
                key=variable.op.name,
                expected="a resource variable",
                found="a reference variable",
                remedy="make it with use_resource=True, or call write() outside of the function",
            )
    handles = [handle for obj in objects if (handle := _handle(obj)) is not None] if not variables else []

    def run(tensor: Any, *arguments: Any) -> str:
        if not variables:
            return write(tensor)
        with session.given(variables, [to_array(value) for value in arguments]):
            return write(tensor)

    prefix = path if tf.is_tensor(path) else tf.constant(plain_path(path))
    # The handles are what tells TensorFlow which variables are read. Those of a graph are read here, for the session.
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
