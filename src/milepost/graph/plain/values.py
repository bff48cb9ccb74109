"""Plain values: Python's numbers, text and None, and scalars of NumPy.

=========  ==========================================================================
type       saved as
=========  ==========================================================================
bool       a bool scalar
int        an int64 scalar; beyond 64 bits its hexadecimal digits, as a string scalar
float      a float64 scalar
complex    a complex128 scalar
str        a string scalar: UTF-8, in which lone surrogates are encoded as well
bytes      a string scalar
None       a bool tensor of shape [0], which differs from every number
=========  ==========================================================================

A scalar of NumPy is saved with its own element type, and in the field that TensorFlow reads, like an array.

The object graph has the name of the type (`milepost.graph.saved.object_graph`). So a value is restored with its saved type, whatever
the live value is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError
from milepost.graph.adapter import Array, Value, adapter_of_type
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.numbers import NUMBERS, scalar_like, taken_by_scalar
from milepost.tensor import DType, TensorSpec
from milepost.tensor.dtype import LONG, STRING

_BOOL: Final = NUMBERS[bool]
_INT64: Final = range(-(1 << 63), 1 << 63)
_NOTHING: Final = np.zeros(0, np.bool_)
SPEC_OF_NONE: Final = TensorSpec(_BOOL, (0,))
"""What is saved for None."""
SHOWN_NONE: Final = "None"
"""Lists of values show None so. Other values have an element type and a shape there."""
_SCALARS: Final = frozenset(
    dtype
    for dtype in DType.all()
    if dtype.name in ("bool", "string")
    or (dtype.numpy.names is None and any(kind in dtype.name for kind in ("int", "float", "complex")))
)
"""Element types whose elements are Python's numbers or text."""
_OF_NUMPY: Final[dict[str, type]] = {
    **{f"numpy.{dtype.name}": dtype.numpy.type for dtype in _SCALARS if not dtype.is_bytes},
    "numpy.str": np.str_,
    "numpy.bytes": np.bytes_,
    "numpy.datetime64": np.datetime64,
    "numpy.timedelta64": np.timedelta64,
    **{f"numpy.{name}": kind for kind, name in LONG.items()},
}
_OF_LETTER: Final[dict[str, Callable[[Any], Any]]] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
"""The types of plain numbers, by NumPy's letter for their element types."""
TYPE_NAMES: Final[dict[type, str]] = {
    **{kind: kind.__name__ for kind in (bool, int, float, complex, str, bytes, type(None))},
    # on some systems, types of their own beside those of so many bits
    **{kind: f"numpy.{np.dtype(kind).name}" for kind in (np.longlong, np.ulonglong)},
    **{kind: name for name, kind in _OF_NUMPY.items()},
}
"""The exact types, with their names in the object graph. Subclasses are left out, because they may hold more."""
_TYPES: Final[dict[str, type]] = {name: kind for kind, name in TYPE_NAMES.items()}
PLAIN: Final[frozenset[type]] = frozenset(TYPE_NAMES)
"""The types."""


def type_named(name: str) -> type | None:
    """The type of plain values with this name in the object graph. None if there is none."""
    return _TYPES.get(name)


def plain_value(value: Any) -> Value:
    """A plain value as a `Value` for a save."""
    kind = type(value)
    if kind in NUMBERS and (kind is not int or value in _INT64):
        dtype = NUMBERS[kind]
        return Value(VARIABLE_VALUE, dtype, (), np.array(value, dtype.numpy), skipped_by_tensorflow=True)
    if isinstance(value, str):
        return _text(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return _text(bytes(value))
    if isinstance(value, np.generic):
        return Value(VARIABLE_VALUE, DType.of(value.dtype), (), partial(np.array, value))
    if value is None:
        return Value(VARIABLE_VALUE, _BOOL, (0,), _NOTHING, skipped_by_tensorflow=True)
    return _text(hex(value).encode())


def _text(data: bytes) -> Value:
    return Value(VARIABLE_VALUE, STRING, (), partial(np.array, data, object), skipped_by_tensorflow=True)


def taken_value(value: Any, saved_as: str) -> Value:
    """The `Value` of a plain value in a restore. It takes any number, text or None, also of another type.

    If no plain value was saved, a scalar of NumPy takes only its own type.

    Args:
        value: The live value.
        saved_as: The name of the type that was saved, or empty if no plain value was saved.
    """
    if not saved_as and isinstance(value, np.generic):
        return plain_value(value)
    kind = type(value)
    is_usual = kind in NUMBERS and (kind is not int or value in _INT64)
    dtype = NUMBERS[kind] if is_usual else plain_value(value).dtype
    return _taking(dtype.number or dtype.name, (0,) if saved_as == "NoneType" else ())


@cache
def _taking(dtype: int | str, shape: tuple[int, ...]) -> Value:
    """One `Value` for all plain values of the same element type, given by its number, or by its name if it has none. A restore does not read its
    source."""
    known = DType.from_number(dtype) if isinstance(dtype, int) else DType.named(dtype)
    return Value(VARIABLE_VALUE, known, shape, _NOTHING, accepts=_SCALARS, skipped_by_tensorflow=True)


class NumberTaker(Value):
    """A `Value` without dimensions that takes a plain number of another element type.

    Args:
        value: The value of the live object.
        rounded: Whether the live element type may round a fraction.
    """

    __slots__ = ("_rounded",)

    converts = True

    def __init__(self, value: Value, *, rounded: bool) -> None:
        self._rounded = rounded
        accepts = value.accepts | taken_by_scalar(value.dtype)
        super().__init__(value.name, value.dtype, value.shape, value.source, None, value.full_name, accepts)

    def taken(self, array: Array) -> Array:
        """The number with the live element type.

        Raises:
            MismatchError: The live element type has no equal number, or none as near as it may be.
        """
        return scalar_like(self.dtype.numpy, array, rounded=self._rounded)


def from_saved(array: Array, saved_as: str, live: Any) -> Any:
    """The plain value that was saved.

    Args:
        array: The saved tensor.
        saved_as: The name of the type that was saved, or empty if no plain value was saved.
        live: The live value.

    Raises:
        CorruptCheckpointError: The tensor cannot be of this type.
    """
    if array.shape:
        return None
    element = array[()]
    wanted = _OF_NUMPY.get(saved_as, type(live) if not saved_as and isinstance(live, np.generic) else None)
    if wanted is not None:
        return _scalar(element, wanted, saved_as)
    if not isinstance(element, (bytes, str)):
        number = _OF_LETTER.get(array.dtype.kind)
        if number is None:  # such as that of bfloat16
            number = float if "float" in array.dtype.name else int
        return number(element)
    data = element.encode() if isinstance(element, str) else element
    if saved_as == "bytes" or (not saved_as and type(live) is bytes):
        return data
    try:
        return int(data, 16) if saved_as == "int" else data.decode("utf-8", "surrogatepass")
    except ValueError:
        if not saved_as:
            return data
        raise _of_another_type(saved_as, data) from None


def _scalar(element: Any, kind: type, saved_as: str) -> Any:
    if type(element) is kind:
        return element
    data = element.encode() if isinstance(element, str) else element
    if isinstance(data, bytes) and kind is np.bytes_:
        return np.bytes_(data)
    if isinstance(data, bytes) and kind is np.str_:
        with contextlib.suppress(UnicodeDecodeError):  # the error below names the value
            return np.str_(data.decode("utf-8", "surrogatepass"))
    raise _of_another_type(saved_as or kind.__name__, element)


def _of_another_type(expected: str, found: Any) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "a saved value is not of the type that the object graph names", expected=expected, found=f"{found!r:.80}"
    )


def is_value(obj: Any) -> bool:
    """Whether this is an array, or a list, dict or tuple of arrays and plain values.

    Example:
        >>> import numpy as np
        >>> is_value((np.zeros(2), 1, {"done": False})), is_value([object()]), is_value([])
        (True, False, False)
    """
    values, seen, arrays = [obj], {id(obj)}, 0
    for value in values:
        if type(value) in PLAIN:
            continue
        if isinstance(value, dict):
            below: Collection[Any] = value.values()
        elif isinstance(value, (list, tuple)):
            below = value
        else:
            adapter = adapter_of_type(type(value))
            if adapter is None or not adapter.is_value(value):
                return False
            arrays += 1
            continue
        values += [member for member in below if id(member) not in seen]
        seen.update(map(id, below))
    return arrays > 0
