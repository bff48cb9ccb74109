"""The value of an attribute of another object, as plain data, and how to restore it.

A record is a tuple of a kind and plain data:

==============  ====================================================================================================
``plain``       the value itself, which `milepost.plain_state.encoding` can write
``tensorflow``  an array that was a tensor of TensorFlow; ``jax`` one that was an array of JAX
``list``        records of the members; also ``tuple`` and ``dict``
``state``       the state of a generator, or of an object with ``state_dict()`` or ``get_state()``
``variables``   the arrays in an object with ``variables``, such as a metric of Keras
``attributes``  records of the attributes of an object of the program's own class
==============  ====================================================================================================

The last three are restored into the present object. Objects in lists and dicts cannot be restored.
"""

from __future__ import annotations

import random
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from milepost.adapters.generators import python_state, set_python_state
from milepost.callbacks.data.sources import state_of
from milepost.callbacks.plain_data import to_json
from milepost.coding.crc32c import crc32c
from milepost.errors import MilepostError, UnsupportedError
from milepost.graph.adapter import adapter_of
from milepost.graph.frameworks import imported
from milepost.plain_state.encoding import pack

Record = tuple[str, Any]
_IN_PLACE: Final = ("state", "variables", "attributes")
_LIBRARIES: Final = ("keras", "tf_keras", "tensorflow", "torch", "jax", "jaxlib", "flax", "numpy", "milepost")
_DEEPEST: Final = 8


def record(value: Any, depth: int = 0) -> Record:
    """Makes a record.

    Raises:
        UnsupportedError: The value has something in it that is not data.
    """
    if depth > _DEEPEST:
        raise _no_data(value)
    if type(value) in (list, tuple):
        return type(value).__name__, [_member(each, depth) for each in value]
    if type(value) is dict:
        return "dict", [[key, _member(each, depth)] for key, each in value.items()]
    library = type(value).__module__.partition(".")[0]
    if library in ("tensorflow", "jax", "jaxlib") and hasattr(value, "dtype") and not hasattr(value, "assign"):
        return "tensorflow" if library == "tensorflow" else "jax", np.asarray(value)
    if isinstance(value, np.random.Generator):
        return "state", value.bit_generator.state
    if isinstance(value, random.Random):
        return "state", python_state(value)
    try:
        to_json(value, "callback")
    except MilepostError:
        pass
    else:
        return "plain", value
    return _of_object(value, depth)


def fingerprint(found: Record) -> tuple[int, ...]:
    """Numbers that differ if records differ."""
    arrays = pack(_plain(found))
    return tuple(
        crc32c(array.item() if array.dtype == object else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        for array in arrays.values()
    )


def is_in_place(found: Record) -> bool:
    """Whether a record is restored into the present object."""
    return found[0] in _IN_PLACE


def saved_form(found: Record) -> Any:
    """Converts a record to plain data, for `put_back`."""
    return _plain(found)


def put_back(owner: Any, name: str, saved: Any) -> None:
    """Restores the value of an attribute.

    Raises:
        Exception: The present object rejects it.
    """
    kind, data = saved
    if kind not in _IN_PLACE:
        setattr(owner, name, _made(saved))
        return
    value = getattr(owner, name)
    if kind == "attributes":
        for each, inner in data.items():
            put_back(value, each, inner)
    elif kind == "variables":
        for variable, array in zip(value.variables, data, strict=True):
            variable.assign(array)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = data
    elif isinstance(value, random.Random):
        set_python_state(value, data)
    else:
        methods = state_of(value)
        if methods is None:
            raise _no_data(value)
        methods[1](data)


def _member(value: Any, depth: int) -> Record:
    member = record(value, depth + 1)
    if is_in_place(member):
        raise _no_data(value)
    return member


def _of_object(value: Any, depth: int) -> Record:
    if isinstance(value, (type, FunctionType, MethodType, ModuleType)) or callable(getattr(value, "fit", None)):
        raise _no_data(value)
    methods = state_of(value)
    if methods is not None:
        state = methods[0]()
        to_json(state, "callback")
        return "state", state
    variables = getattr(value, "variables", None)
    if hasattr(value, "update_state") and isinstance(variables, (list, tuple)):
        return "variables", [_array(each) for each in variables]
    library = type(value).__module__.partition(".")[0]
    if library in _LIBRARIES or library in sys.stdlib_module_names or not hasattr(value, "__dict__"):
        raise _no_data(value)
    return "attributes", {name: record(each, depth + 1) for name, each in vars(value).items()}


def _array(variable: Any) -> np.ndarray[Any, Any]:
    adapter = adapter_of(variable)
    if adapter is None:
        raise _no_data(variable)
    return np.array(adapter.values(variable)[0].read())


def _plain(found: Record) -> Any:
    kind, data = found
    if kind in ("list", "tuple"):
        return [kind, [_plain(each) for each in data]]
    if kind == "dict":
        return [kind, [[key, _plain(each)] for key, each in data]]
    if kind == "attributes":
        return [kind, {name: _plain(each) for name, each in data.items()}]
    return [kind, data]


def _made(saved: Any) -> Any:
    kind, data = saved
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_made(each) for each in data)
    if kind == "dict":
        return {key: _made(each) for key, each in data}
    if kind in ("tensorflow", "jax"):
        library = imported(kind)  # without the library, the array is used
        if library is not None:
            return library.convert_to_tensor(data) if kind == "tensorflow" else library.numpy.asarray(data)
    return data


def _no_data(value: Any) -> UnsupportedError:
    return UnsupportedError(
        "this object is not plain data", found=f"a {type(value).__module__}.{type(value).__qualname__}"
    )
