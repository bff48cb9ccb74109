"""Remedies for objects that cannot be saved. The text depends on the object."""

from __future__ import annotations

import datetime
import os
import sys
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import is_dataclass
from enum import Enum
from io import IOBase
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from milepost.errors import RefusedError, UnsupportedError, UntrackableError

_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)
_WITH_TEXT: Final = frozenset(
    [("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("torch", "device"), ("torch", "dtype")]
)
"""Classes whose text is all of their value, by module and name, so that these modules need not be imported."""
_NAMESPACES: Final = frozenset([("types", "SimpleNamespace"), ("argparse", "Namespace")])
_NO_VALUE: Final = ("float0",)
"""The fields of JAX's element type for gradients with respect to integers."""
_LEAVE: Final = "or wrap it in milepost.NoDependency if it need not be saved"


def is_of_python(kind: type) -> bool:
    """Whether a class belongs to Python, such as that of threads or of modules."""
    return str(kind.__module__).partition(".")[0] in sys.stdlib_module_names


def remedy_for(value: Any, *, has_adapter: bool = False) -> str:
    """The remedy for an object that is not trackable.

    Args:
        value: The object.
        has_adapter: Whether objects of its type can be saved, but not this one.

    Example:
        >>> remedy_for({1, 2})
        'hold its members in a list, tuple or dict instead, or wrap it in milepost.NoDependency if it need not be saved'
    """
    kind = type(value)
    name = kind.__name__
    if issubclass(kind, np.ndarray):
        return _for_array(value.dtype)
    if has_adapter:
        return "wrap it in milepost.NoDependency if it need not be saved"
    if kind.__module__.startswith("torch.utils.data") and "DataLoader" in name:
        return (
            "pass milepost.accelerate.DataPosition(loader), which is its position in the data and needs no Accelerate, or use "
            "torchdata.stateful_dataloader.StatefulDataLoader"
        )
    if any(base.__module__.partition(".")[0] == "milepost" for base in kind.__mro__):
        return f"leave it out: a {name} of milepost works on the state, and is no part of it"
    if issubclass(kind, ModuleType):
        if value.__name__.rpartition(".")[2] == "random":
            return "pass milepost.RandomState(), which is the random state of Python, NumPy, TensorFlow and PyTorch"
        return "pass the objects to be saved; a Python module itself has no state that can be saved"
    if kind.__module__.startswith("tensorflow.") and name.endswith("Tensor"):
        return f"hold its values in a tf.Variable, or in several if it is sparse or ragged, {_LEAVE}"
    if issubclass(kind, tuple):
        return f"hold what is in it in attributes, or in lists and dicts in attributes, {_LEAVE}"
    if issubclass(kind, (Set, deque, list)):
        return f"hold its members in a list, tuple or dict instead, {_LEAVE}"
    if issubclass(kind, Mapping):
        return f"hold its members in a dict or OrderedDict instead, {_LEAVE}"
    if issubclass(kind, type):
        return f"pass an object of {value.__name__}, and not the class itself"
    if issubclass(kind, _FUNCTIONS):
        return "pass the objects that the function uses; a function itself has no state that can be saved"
    if issubclass(kind, IOBase):
        return f"hold its path as text and open it again, {_LEAVE}"
    if issubclass(kind, Iterator):
        return (
            "count in a milepost.Variable how far it is, or iterate with an object that has state_dict() and "
            "load_state_dict(state)"
        )
    kept = f"hold what is to be saved of it in milepost.Variable, {_LEAVE}"
    if is_of_python(kind):
        return kept
    advice = "make it a subclass of milepost.Module" if is_dataclass(kind) else "derive it from milepost.Module"
    return (
        f"if {name} is a class of your own, {advice}, which saves the variables and arrays in its attributes but treats "
        f"numbers and text as settings, or give it state_dict() and load_state_dict(state); otherwise {kept}"
    )


def _derives_from(kind: type, named: Set[tuple[str, str]]) -> bool:
    return any((base.__module__, base.__name__) in named for base in kind.__mro__)


def remedy_for_state(value: Any) -> str:
    """The remedy for a value that a `Checkpoint` holds and that cannot be written to a file.

    Args:
        value: The value. Its type is not one that is saved.

    Example:
        >>> import datetime
        >>> remedy_for_state(datetime.date(2026, 1, 2))
        'hold it as text, as isoformat() gives it, or wrap it in milepost.NoDependency if it need not be saved'
    """
    kind = type(value)
    if issubclass(kind, Enum):
        return f"hold its value or its name, {_LEAVE}"
    if issubclass(kind, (datetime.date, datetime.time)):
        return f"hold it as text, as isoformat() gives it, {_LEAVE}"
    if issubclass(kind, datetime.timedelta):
        return f"hold its seconds, as total_seconds() gives them, {_LEAVE}"
    if issubclass(kind, (os.PathLike, np.dtype)) or _derives_from(kind, _WITH_TEXT):
        return f"hold it as text, as str() gives it, {_LEAVE}"
    if issubclass(kind, (range, slice)):
        return f"hold its start, stop and step in a tuple, {_LEAVE}"
    if issubclass(kind, (bytearray, memoryview)):
        return f"hold it as bytes, as bytes() gives them, {_LEAVE}"
    if issubclass(kind, array):
        return f"hold it as a NumPy array, as numpy.asarray() gives it, {_LEAVE}"
    if _derives_from(kind, _NAMESPACES):
        return f"hold its attributes in a dict, as vars() gives them, {_LEAVE}"
    if issubclass(kind, np.generic):
        return f"hold it as a number or as text, {_LEAVE}"
    for plain in (bool, int, float, complex, str, bytes):
        if issubclass(kind, plain):
            return f"hold it as a plain {plain.__name__}, as {plain.__name__}() gives it, {_LEAVE}"
    return remedy_for(value)


def _for_array(dtype: np.dtype[Any]) -> str:
    if dtype.names == _NO_VALUE:
        return f"put None in its place, because it has no value, {_LEAVE}"
    if dtype.names:
        return f"hold each of its fields as an array of a type that it has in NumPy alone, {_LEAVE}"
    if dtype.hasobject:
        return f"hold it as a list, as tolist() gives it, or as an array of numbers or text, {_LEAVE}"
    return f"hold it as an array of another element type, as astype() gives it, {_LEAVE}"


def adapter_failed(adapter: Any, method: str, error: Exception) -> UntrackableError:
    """The error for an adapter, of a program or another library, that raises an exception.

    Args:
        adapter: The adapter.
        method: Its method that failed.
        error: The error that the method raised, or that its result led to.
    """
    call = f"{type(adapter).__name__}.{method}()"
    return UntrackableError(
        f"{call} failed",
        expected="an answer as the docstring of milepost.adapters.Adapter describes it",
        found=f"{type(error).__name__}: {error}",
        remedy=f"correct {call}; the tests of milepost.testing.adapter_suite find such faults",
    )


def cannot_be_read(obj: Any, error: Exception, adapter: Any = None, asked: str = "children") -> UntrackableError:
    """The error for an object that raises an exception when its children or values are read.

    Args:
        obj: The object.
        error: The error that the object raised.
        adapter: Its adapter. If the adapter is not milepost's, the error names the adapter and its method.
        asked: The method to name if the error is in the result of a method and not in its code.
    """
    if adapter is not None and not type(adapter).__module__.startswith("milepost."):
        return adapter_failed(adapter, _method_in(adapter, error) or asked, error)
    kind = type(obj)
    attributes = vars(kind)
    lookup = next((name for name in ("__getattr__", "__getattribute__") if name in attributes), None)
    if lookup is not None:
        remedy = f"let {kind.__name__}.{lookup}() raise AttributeError for names that it does not know"
    elif "__init__" in attributes:
        remedy = f"let {kind.__name__}.__init__() call super().__init__() first"
    else:
        remedy = f"see what {kind.__name__} needs before it can be used, {_LEAVE}"
    return UntrackableError(
        "an object raises an error when its children or values are read",
        expected=f"a complete {kind.__name__}",
        found=f"{type(error).__name__}: {error}",
        remedy=remedy,
    )


def _method_in(adapter: Any, error: Exception) -> str:
    """The method of an adapter that raised an error. Empty if no method did."""
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        first = code.co_varnames[:1]
        if code.co_name in adapter.overrides and first and frame.tb_frame.f_locals.get(first[0]) is adapter:
            return code.co_name
        frame = frame.tb_next
    return ""


def without_assign(adapter: Any, value: str) -> UnsupportedError:
    """The error for an adapter that cannot assign a saved value to its object.

    Args:
        adapter: The adapter.
        value: The local name of the value.
    """
    name = type(adapter).__name__
    return UnsupportedError(
        f"{name} has no way to restore its value {value!r}, so the saved value would be lost; nothing was changed",
        expected=f"a Value with a destination, or a method {name}.assign()",
        found=f"Value({value!r}, ...) without a destination, and no assign()",
        remedy="return it with destination=..., which is the memory of the object, or override assign()",
    )


def returned(adapter: Any, method: str, successor: Any) -> Any:
    """The result of `Adapter.assign` or `Adapter.replace`, checked.

    Raises:
        RefusedError: The method returned None, which would replace the object.
    """
    if successor is None:
        name = f"{type(adapter).__name__}.{method}"
        raise RefusedError(
            f"{name} returned None; it returns the object or its successor",
            expected="the object or its successor",
            found="None, which would replace the object",
            remedy=f"end {name}() with `return obj`",
        )
    return successor


def forgotten_init(obj: Any) -> UntrackableError:
    """The error for an object that was not initialized, because its class does not call ``super().__init__()``."""
    name = type(obj).__name__
    return UntrackableError(
        f"this {name} was not initialized",
        expected=f"super().__init__(...) in {name}.__init__()",
        found="an __init__() without it",
        remedy=f"let {name}.__init__() call super().__init__(...) first",
    )
