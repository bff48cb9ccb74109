"""Values of objects that are not variables: states of iterators, contents of tables, values of users' own classes.

TensorFlow has three protocols for them: ``serialize`` and ``deserialize`` of `tf.train.experimental.PythonState`;
``_serialize_to_tensors`` and ``_restore_from_tensors``; and the older ``_gather_saveables_for_checkpoint``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import tensorflow as tf

from milepost.adapters.tensorflow import session
from milepost.adapters.tensorflow.private import (
    IteratorBase,
    NumpyIterator,
    Trackable,
    registration,
    saveable_compat,
    saveable_object,
    saveable_object_util,
)
from milepost.adapters.tensorflow.tensors import dtype_of, from_array, to_array
from milepost.errors import UnsupportedError
from milepost.graph.adapter import Array, Value
from milepost.graph.variable import as_array
from milepost.tensor import DType
from milepost.tensor.dtype import STRING

PythonState: Any = tf.train.experimental.PythonState
_VARIANT: Final = DType.of("variant")
_STATE: Final = "_STATE"
_ITERATORS: Final = (IteratorBase, NumpyIterator)
_STATELESS: Final = (
    "a data set whose functions have no state: no from_generator, numpy_function or py_function, and random numbers from "
    "functions such as tf.random.stateless_uniform, with seeds from tf.data.Dataset.random"
)


def registered_saver(obj: Any) -> str:
    """The name of the saver that is registered for an object instead of these protocols; empty if there is none."""
    name: str | None = registration.get_registered_saver_name(obj)
    return name or ""


def values(obj: Any, use: session.Use | None) -> Sequence[Value]:
    """The values of an object. Those that are in a session are read in that of a `use`."""
    if isinstance(obj, PythonState):
        return (Value("py_state", STRING, (), lambda: as_array(obj.serialize())),)
    if saveable_object_util.trackable_has_serialize_to_tensor(obj):
        return _serialized(obj, use)
    with _eagerly(obj):
        return [
            _value(spec.name, spec.tensor, listed, use)
            for listed, saveable in _saveables(obj)
            for spec in saveable.specs
        ]


def assign(obj: Any, arrays: Mapping[str, Array], use: session.Use | None) -> None:
    """Assigns its saved values to an object."""
    if isinstance(obj, PythonState):
        obj.deserialize(arrays["py_state"].item())
        return
    with _eagerly(obj):
        dtypes = {value.name: value.dtype for value in values(obj, use)}
        tensors = {name: from_array(array, dtypes[name]) for name, array in arrays.items()}
        if saveable_object_util.trackable_has_serialize_to_tensor(obj):
            prefix = _listed(obj)
            made = [obj._restore_from_tensors({name.removeprefix(prefix): tensor for name, tensor in tensors.items()})]
        else:
            made = [
                saveable.restore([tensors[spec.name] for spec in saveable.specs], restored_shapes=None)
                for _, saveable in _saveables(obj)
            ]
        if not tf.executing_eagerly():
            operations = [each for each in tf.nest.flatten(made) if each is not None]
            if operations:
                session.run_in_session(obj, operations, use)


def _serialized(obj: Any, use: session.Use | None) -> Sequence[Value]:
    listed = _listed(obj)
    if isinstance(obj, _ITERATORS):  # the state may be large, so it is computed only in a save

        def state() -> Array:
            with _eagerly(obj):
                return _read(obj._serialize_to_tensors()[_STATE], use)

        return (Value(listed + _STATE, _VARIANT, (None,), state, listed=listed),)
    with _eagerly(obj):
        return [_value(listed + name, tensor, listed, use) for name, tensor in obj._serialize_to_tensors().items()]


def _listed(obj: Any) -> str:
    """The name under which the object graph lists all tensors of an object, and with which their names begin; empty if none."""
    name: str | None = saveable_compat.get_saveable_name(obj)
    return name or ""


def _saveables(obj: Any) -> Iterator[tuple[str, Any]]:
    """Pairs of a listed name and the object that saves the tensors under it. The names of these tensors begin with the listed name."""
    if getattr(type(obj), "_gather_saveables_for_checkpoint", None) is Trackable._gather_saveables_for_checkpoint:
        factories: Mapping[str, Any] = getattr(obj, "_self_saveable_object_factories", {})
    else:
        factories = obj._gather_saveables_for_checkpoint()
    for name, factory in factories.items():
        made = factory(name=name) if callable(factory) else factory
        if isinstance(made, saveable_object.SaveableObject):
            yield name, made
        else:
            yield from ((name, each) for each in saveable_object_util.saveable_objects_for_op(made, name))


def _value(name: str, tensor: Any, listed: str, use: session.Use | None) -> Value:
    if isinstance(tensor, dict):
        if set(tensor) != {""}:
            raise UnsupportedError(
                "this object saves its value in slices",
                key=name,
                found=", ".join(map(repr, tensor)),
                expected="a tensor",
                remedy="return one tensor for each name in _serialize_to_tensors()",
            )
        tensor = tensor[""]
    if isinstance(tensor, saveable_object.SaveSpec):
        tensor = tensor.tensor
    if callable(tensor):
        tensor = tensor()
    tensor = tf.convert_to_tensor(tensor)
    rank = tensor.shape.rank if tensor.shape.rank is not None else _read(tensor, use).ndim
    return Value(name, dtype_of(tensor), (None,) * rank, lambda: _read(tensor, use), listed=listed)


def _read(tensor: Any, use: session.Use | None) -> Array:
    if not session.is_symbolic(tensor):
        return to_array(tensor)
    if tensor.dtype == tf.variant:
        raise UnsupportedError(
            "the state of this object cannot be read out of a session",
            found=f"a tensor of type variant, {tensor.name}",
            remedy="run the program eagerly, or leave the object out of the checkpoint",
        )
    return session.evaluate(tensor, use)


@contextmanager
def _eagerly(obj: Any) -> Iterator[None]:
    """Runs TensorFlow's operations at once, also inside a traced function, and names the object in their errors."""
    try:
        with tf.init_scope():
            yield
    except tf.errors.OpError as error:
        raise UnsupportedError(
            f"TensorFlow cannot save or restore this {type(obj).__name__}",
            expected=_STATELESS if isinstance(obj, _ITERATORS) and "is stateful" in error.message else None,
            found=error.message,
        ) from error
