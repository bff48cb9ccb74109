"""Variables of TensorFlow 1's graphs, whose values are in a session.

The graph of a session may be frozen, so no operation is added to it. A value is read through the tensor that the variable has
already. It is assigned by running the variable's initializer with the saved value fed instead of the initial value. All
variables are read in one run of the session, and all are assigned in one, unless they share an initial value.

A restore without a session is postponed. The value is kept with its variable, and each call of `restore` assigns it in a session.

Other objects that have tensors of a graph as values (`milepost.adapters.tensorflow.serialization`) are read by running these
tensors. They are restored by running operations that are made for it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import numpy as np
import tensorflow as tf

from milepost.adapters.tensorflow.private import ShardedVariable
from milepost.adapters.tensorflow.wrapped import is_of_session, unwrapped
from milepost.errors import UnsupportedError
from milepost.facts import Fact
from milepost.graph.adapter import Adapter, Array
from milepost.graph.contract.operation import Operation

_Assigned = tuple[Any, Array]


class Use:
    """One save or restore with a session, or one save with values of variables that were read before.

    Args:
        session: The session, or None.
        variables: Variables of the graph.
        arrays: Their values.

    Attributes:
        session: As given.
        values: The values, by the identities of the variables.
        assigned: Variables to assign when the use ends, each with its value.
        operations: Operations to run after that.
        has_ended: Whether the save or restore is over. Objects that come later do without the session.
    """

    def __init__(self, session: Any, variables: Sequence[Any], arrays: Sequence[Array]) -> None:
        self.session = session
        self.values = {id(variable): array for variable, array in zip(variables, arrays, strict=True)}
        self.assigned: list[_Assigned] = []
        self.operations: list[Any] = []
        self.has_ended = False


class InSession(Adapter):
    """The base of adapters of objects whose values may be in a session."""

    _use: Use | None = None

    def during(self, operation: Operation) -> Self:
        if operation.session is None:
            return self
        adapter = copy.copy(self)
        adapter._use = operation.session
        return adapter


_postponed: Final[Fact[Array]] = Fact()
"""The values of variables that were restored without a session."""
_postponed_operations: Final[Fact[Any]] = Fact()
"""The operations that restore other objects of graphs."""


@contextmanager
def use(session: Any, objects: Iterable[Any] = ()) -> Iterator[Use]:
    """A scope in which a save reads the variables of a graph from a session, and a restore assigns them in it when the scope ends. The operation
    gets its result (`Operation.session`).

    Args:
        session: A `tf.compat.v1.Session`.
        objects: All objects that will be saved. Those that are not variables of a graph are ignored.

    Raises:
        UnsupportedError: One of them has no value in this session.
    """
    variables = graph_variables(objects)
    scope = Use(session, variables, _values(session, variables))
    try:
        yield scope
    finally:
        scope.has_ended = True
    _assign(session, scope.assigned)
    if scope.operations:
        session.run(scope.operations)


def _present(use: Use | None) -> Use | None:
    return None if use is None or use.has_ended else use


def read(variable: Any, use: Use | None) -> Array:
    """The value of a graph variable, from a `use`, or from the default session if there is none.

    Raises:
        UnsupportedError: There is no session, or the variable has no value in it.
    """
    scope = _present(use)
    if scope is None:
        return _values(_default_session(variable), [variable])[0]
    if id(variable) not in scope.values:
        # A restore asks for the present values too, and does not need them: in a session it assigns only after everything was checked.
        raise UnsupportedError(
            "this variable of a graph is not among those that are saved with the session",
            key=variable.op.name,
            remedy="attach it to an object of the checkpoint before the save, and not during it",
        )
    return scope.values[id(variable)]


def assign(variable: Any, array: Array, use: Use | None) -> None:
    """Assigns a graph variable when a `use` ends. Without one: now, if there is a default session, and in `restore`."""
    scope = _present(use)
    if scope is not None:
        scope.assigned.append((variable, array))
        return
    _postponed[variable] = array
    session = tf.compat.v1.get_default_session()
    if session is not None and session.graph is variable.graph:
        _assign(session, [(variable, array)])


def is_symbolic(value: Any) -> bool:
    """Whether this is a variable or a tensor of a graph, whose value is in a session."""
    if isinstance(value, tf.Variable):
        return is_of_session(unwrapped(value))
    return tf.is_tensor(value) and hasattr(value, "graph")


def evaluate(value: Any, use: Use | None = None) -> Array:
    """The value of a tensor or variable of a graph, in the session of a `use` or in the default session.

    Raises:
        UnsupportedError: There is no session, or a variable has no value in it.
    """
    if isinstance(value, tf.Variable):
        return _values(_default_session(value), [unwrapped(value)])[0]
    scope = _present(use)
    session = scope.session if scope is not None else None
    try:
        array = (session or _default_session(None)).run(value)
    except tf.errors.FailedPreconditionError as error:
        raise _without_value(None, error) from error
    return np.asarray(array, object if value.dtype == tf.string else None)


def run_in_session(obj: Any, operation: Any, use: Use | None) -> None:
    """Runs the operation that restores an object of a graph, at the times at which `assign` assigns."""
    scope = _present(use)
    if scope is not None:
        scope.operations.append(operation)
        return
    _postponed_operations[obj] = operation
    session = tf.compat.v1.get_default_session()
    if session is not None:
        session.run(operation)


def restore(objects: Iterable[Any], session: Any = None) -> None:
    """Assigns the postponed values of variables, and runs the postponed operations.

    Args:
        objects: The variables, and other objects of graphs. All others are ignored.
        session: The session, or None for the default session.

    Raises:
        UnsupportedError: There is no session.
    """
    objects = list(objects)
    postponed = [(variable, _postponed.get(variable)) for variable in graph_variables(objects)]
    assigned = [(variable, array) for variable, array in postponed if array is not None]
    if assigned:
        _assign(session or _default_session(assigned[0][0]), assigned)
    operations = [found for obj in objects if (found := _postponed_operations.get(obj)) is not None]
    if operations:
        (session or _default_session(None)).run(operations)


def initialize(objects: Iterable[Any], session: Any = None) -> None:
    """Runs the initializers of all variables that have no postponed value. Arguments and errors are those of `restore`."""
    fresh = [variable for variable in graph_variables(objects) if variable not in _postponed]
    if fresh:
        (session or _default_session(fresh[0])).run([variable.initializer for variable in fresh])


def write_meta_graph(session: Any, path: str, *, strip_default_attrs: bool, save_debug_info: bool) -> None:
    """Writes the graph of a session as a ``MetaGraphDef``, from which TensorFlow can build it again."""
    with session.graph.as_default():
        tf.compat.v1.train.export_meta_graph(
            path, strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info
        )


def graph_variables(objects: Iterable[Any]) -> list[Any]:
    """The variables of graphs among some objects. Those of a sharded variable are its parts."""
    parts = [part for obj in objects for part in (obj.variables if isinstance(obj, ShardedVariable) else (obj,))]
    variables = [unwrapped(part) for part in parts if isinstance(part, tf.Variable)]
    return [variable for variable in variables if is_of_session(variable)]


def _values(session: Any, variables: Sequence[Any]) -> list[Array]:
    if not variables:
        return []
    try:
        return [np.asarray(array) for array in session.run([_tensor(_replicas(each)[0]) for each in variables])]
    except tf.errors.FailedPreconditionError as error:
        raise _without_value(variables[0].op.name if len(variables) == 1 else None, error) from error


def _without_value(name: str | None, error: tf.errors.FailedPreconditionError) -> UnsupportedError:
    return UnsupportedError(
        "a variable has no value yet in the session",
        key=name,
        found=error.message.splitlines()[0],
        remedy="run its initializer before saving",
    )


def _assign(session: Any, assigned: Sequence[_Assigned]) -> None:
    remaining = [(replica, array) for variable, array in assigned for replica in _replicas(variable)]
    while remaining:
        later: list[_Assigned] = []
        fed: dict[Any, Array] = {}
        initializers = []
        for variable, array in remaining:
            initial = variable.initializer.inputs[1]
            if initial.ref() in fed:  # another variable begins with the same tensor
                later.append((variable, array))
            else:
                fed[initial.ref()] = array
                initializers.append(variable.initializer)
        session.run(initializers, feed_dict={reference.deref(): array for reference, array in fed.items()})
        remaining = later


def _replicas(variable: Any) -> Sequence[Any]:
    """The variable itself, or its replicas if a distribution strategy has made some."""
    if not isinstance(variable, tf.distribute.DistributedValues):
        return (variable,)
    if variable.synchronization is tf.VariableSynchronization.ON_READ and len(variable.values) > 1:
        raise UnsupportedError(
            "this variable has a different value in each replica, and its graph may be frozen",
            key=variable.op.name,
            expected="a variable whose replicas are equal",
            remedy="train with one replica, or eagerly",
        )
    replicas: Sequence[Any] = variable.values
    return replicas


def _tensor(variable: Any) -> Any:
    element = getattr(variable, "_graph_element", None)
    return element if element is not None else variable.value()


def _default_session(variable: Any | None) -> Any:
    session = tf.compat.v1.get_default_session()
    if session is None:
        raise UnsupportedError(
            "variables and tensors of a graph have their values in a session, and there is none",
            key=None if variable is None else variable.op.name,
            remedy="pass a session, as in save(session, path), or make the call within `with tf.compat.v1.Session():`",
        )
    return session
