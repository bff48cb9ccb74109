"""Variables of TensorFlow 1's graphs, whose values only a session knows.

A graph that a session runs may be frozen, so no operation is added to it: a value is read through the tensor that the
variable has anyway, and given by running its initializer with the value fed in place of the initial one. All variables
are read in one run, and all are assigned in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import numpy as np
import tensorflow as tf

from milepost.errors import UnsupportedError
from milepost.graph.adapter import Array


class _Use:
    """One save or restore with a session."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.values: dict[int, Array] = {}
        self.assigned: list[tuple[Any, Array]] = []


_current: Final[ContextVar[_Use | None]] = ContextVar("session_in_use", default=None)


@contextmanager
def use(session: Any, variables: Iterable[Any] = ()) -> Iterator[None]:
    """Saves and restores within take values of graph variables from a session, and give them to it at the end.

    Args:
        session: A `tf.compat.v1.Session`.
        variables: Those that will be read, of any kind; others are left alone.
    """
    scope = _Use(session)
    known = [variable for variable in variables if is_of_graph(variable)]
    if known:
        arrays = session.run([_tensor(variable) for variable in known])
        scope.values = {id(variable): np.asarray(array) for variable, array in zip(known, arrays, strict=True)}
    token = _current.set(scope)
    try:
        yield
    finally:
        _current.reset(token)
    _run(session, scope.assigned)


def is_of_graph(variable: Any) -> bool:
    """Whether an object is a variable that belongs to a graph rather than to this program."""
    if not isinstance(variable, tf.Variable):
        return False
    first = getattr(variable, "_primary", variable)
    return bool(getattr(first, "_in_graph_mode", not hasattr(first, "handle")))


def read(variable: Any) -> Array:
    """The value of a graph variable in the session in use, or in the default session.

    Raises:
        UnsupportedError: There is no session, or the variable is not initialised in it.
    """
    scope = _current.get()
    if scope is not None and id(variable) in scope.values:
        return scope.values[id(variable)]
    try:
        return np.asarray(_session(variable).run(_tensor(variable)))
    except tf.errors.FailedPreconditionError as error:
        raise UnsupportedError(
            "this variable has no value yet in the session",
            key=variable.op.name,
            remedy="run its initializer before saving",
        ) from error


def assign(variable: Any, array: Array) -> None:
    """Gives a graph variable its value, now or, within `use`, when that ends.

    Raises:
        UnsupportedError: There is no session.
    """
    scope = _current.get()
    if scope is not None:
        scope.assigned.append((variable, array))
    else:
        _run(_session(variable), [(variable, array)])


def write_meta_graph(session: Any, path: str, *, strip_default_attrs: bool, save_debug_info: bool) -> None:
    """Writes the graph of a session in TensorFlow's own format, from which it can be rebuilt and looked at."""
    with session.graph.as_default():
        tf.compat.v1.train.export_meta_graph(
            path, strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info
        )


def _run(session: Any, assigned: list[tuple[Any, Array]]) -> None:
    if assigned:
        initializers = [variable.initializer for variable, _ in assigned]
        values = {operation.inputs[1]: array for operation, (_, array) in zip(initializers, assigned, strict=True)}
        session.run(initializers, feed_dict=values)


def _tensor(variable: Any) -> Any:
    element = getattr(variable, "_graph_element", None)
    return element if element is not None else variable.value()


def _session(variable: Any) -> Any:
    scope = _current.get()
    session = scope.session if scope is not None else tf.compat.v1.get_default_session()
    if session is None:
        raise UnsupportedError(
            "a variable of a graph has its value in a session",
            key=variable.op.name,
            remedy="save(session, path) and restore(session, path), or do it within `with tf.compat.v1.Session():`",
        )
    return session
