"""Element types. Most are numbered as in TensorFlow's ``types.proto``; those that TensorFlow lacks have names.

::

    name without number := "float8_e8m0fnu" | "complex32" | "bits16" | "int3" | ...     types of ml_dtypes and PyTorch
                           "datetime64[" unit "]" | "timedelta64[" unit "]"
                           "float80" | "complex160" | "float128" | "complex256"         NumPy's longdouble, by its format
                           "V" bytes                                                    bytes without meaning
                           the descr of a record, as ``.npy`` files have it

Source of the numbers: TensorFlow 2.21, ``tensorflow/core/framework/types.proto``. Numbers above 100 are reference types, which are
never stored. Elements of 4 bits, 2 bits and float4 take one byte each.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from milepost.errors import UnsupportedError, import_if_possible
from milepost.tensor.numpy_types import numpy_type


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class DType:
    """An element type of a stored tensor. There is one object for each; compare with ``is`` or ``==``.

    It equals TensorFlow's type of the same number, with the same hash, and it equals that number. ``tf.as_dtype`` and
    `numpy.dtype` accept it.

    Attributes:
        name: TensorFlow's name, for example ``"float32"``. For a type that TensorFlow lacks, the name that files have.
        number: TensorFlow's ``DataType`` number, which is what files hold; 0 for a type that TensorFlow lacks. Files have its elements as
            bytes.
        numpy: The NumPy dtype of the same elements; ``object`` for ``string`` and ``variant``, whose elements are
            ``bytes``. Quantised types have one named field, so that they differ from plain integers. So has a type that the installed
            ml_dtypes lacks.
        is_bytes: True for ``string`` and ``variant``, whose elements are byte strings.

    Example:
        >>> DType.of("bfloat16").number
        14
        >>> DType.of(np.zeros(3)).name
        'float64'
        >>> np.zeros(3, DType.of("int32")).dtype
        dtype('int32')
    """

    name: str
    number: int
    numpy: np.dtype[Any]
    is_bytes: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_bytes", self.numpy.hasobject)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The same as ``numpy``, under the name that `numpy.dtype` uses."""
        return self.numpy

    @property
    def as_datatype_enum(self) -> int:
        """The same as ``number``, under TensorFlow's name."""
        return self.number

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element; 0 for ``string`` and ``variant``, whose elements vary."""
        return 0 if self.is_bytes else self.numpy.itemsize

    @staticmethod
    def of(value: object) -> DType:
        """The element type of an array, a NumPy dtype, a scalar type or a name.

        Args:
            value: An array, anything `numpy.dtype` accepts, a TensorFlow type name, or a `DType`.

        Raises:
            UnsupportedError: Files cannot hold such elements: they are objects, they have no bytes, or neither NumPy nor ml_dtypes defines
                them. Or the installed ml_dtypes is too old for the type.
        """
        if isinstance(value, np.dtype) and (known := _BY_NUMPY.get(value)) is not None:
            return known
        if isinstance(value, DType):
            return value
        if isinstance(value, str) and value in _BY_NAME:
            return _BY_NAME[value]
        if isinstance(value, str) and value in _UNAVAILABLE.values():
            raise _unavailable(value)
        if isinstance(value, str) and value in _WIDTHS:
            return DType.named(value)
        described = value if isinstance(value, type) else getattr(value, "dtype", value)
        try:
            dtype = numpy_type(described) if isinstance(described, str) else np.dtype(described)  # type: ignore[call-overload]
        except (TypeError, ValueError):
            difflib = import_if_possible("difflib")  # only this error needs it
            near = difflib.get_close_matches(value, _BY_NAME, 1) if difflib and isinstance(value, str) else []
            raise UnsupportedError(
                "not an element type",
                found=repr(value),
                expected="a NumPy dtype",
                remedy=f"did you mean {near[0]!r}?" if near else "use one of: " + ", ".join(sorted(_BY_NAME)),
            ) from None
        known = _BY_NUMPY.get(dtype)
        if known is None and dtype.kind in "SUOT":
            known = STRING
        if known is None:
            known = _BY_NUMPY.get(dtype.newbyteorder("=")) or _of_numpy(dtype)
        if known is None:
            raise UnsupportedError(
                "files cannot hold elements of this type",
                found=dtype,
                remedy="convert the array to one of: " + ", ".join(sorted(_BY_NAME)),
            )
        return known

    @staticmethod
    def named(name: str) -> DType:
        """The element type that TensorFlow lacks and files call by this name.

        Raises:
            UnsupportedError: There is none, or this machine has no such type.

        Example:
            >>> DType.named("datetime64[ns]").numpy
            dtype('<M8[ns]')
        """
        known = _NAMED.get(name)
        if known is None:
            dtype = _numpy_type(name)
            if dtype is None or _name_of(dtype) != name:
                raise UnsupportedError(
                    "unknown name of an element type; a newer version of milepost may have written it, or another kind of machine",
                    found=f"{name:.200}",
                    expected="one of " + ", ".join(sorted(_WIDTHS)) + ", or the name of a type of NumPy",
                )
            known = _NAMED.setdefault(name, DType(name, 0, dtype))
        return known

    @staticmethod
    def from_number(number: int) -> DType:
        """The element type with this number in files.

        Raises:
            UnsupportedError: No storable type has this number, or the installed ml_dtypes is too old for it.
        """
        known = _BY_NUMBER.get(number)
        if known is None and number in _UNAVAILABLE:
            raise _unavailable(_UNAVAILABLE[number])
        if known is None:
            raise UnsupportedError(
                "unknown element type number; a newer TensorFlow may have written it",
                found=number,
                expected="one of " + ", ".join(map(str, sorted(_BY_NUMBER))),
            )
        return known

    @staticmethod
    def all() -> list[DType]:
        """Every element type with a number that can be stored with the installed ml_dtypes, by number."""
        return list(_BY_NUMBER.values())

    @property
    def has_byte_order(self) -> bool:
        """Whether the bytes of an element can be swapped. Those of a record, and bytes without meaning, cannot."""
        return self.number > 0 or self.numpy.kind in "Mm" or self.name in _WIDTHS

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        # TensorFlow looks up the types of other libraries in a table of numbers
        number = other if type(other) is int else getattr(other, "as_datatype_enum", None)
        return NotImplemented if number is None else bool(self.number and self.number == number)

    def __hash__(self) -> int:
        return self.number or hash(self.name)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (DType.from_number, (self.number,)) if self.number else (DType.named, (self.name,))


def _quantised(name: str, base: type[np.generic]) -> np.dtype[Any]:
    return np.dtype([(name, base)])


def _unavailable(name: str) -> UnsupportedError:
    return UnsupportedError(
        "the installed ml_dtypes has no such element type",
        found=name,
        expected="ml_dtypes 0.5.1 or later",
        remedy="run: pip install --upgrade ml_dtypes, if the installed frameworks allow it",
    )


def _numpy_type(name: str) -> np.dtype[Any] | None:
    """The NumPy type of a name without number."""
    if name in _WIDTHS:
        return np.dtype(getattr(ml_dtypes, name, None) or [(name, f"V{_WIDTHS[name]}")])
    if name in LONG.values():
        return next(np.dtype(long) for long in LONG if LONG[long] == name)
    if name.startswith("[") and len(name) <= _LONGEST_RECORD:
        try:
            return numpy_type(ast.literal_eval(name))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None
    try:
        return numpy_type(name) if name.startswith(("datetime64", "timedelta64", "V")) else None
    except ValueError:
        return None


def _name_of(dtype: np.dtype[Any]) -> str | None:
    """The name of a NumPy type in native byte order that has no number; None if files cannot hold it."""
    if dtype.hasobject or not dtype.itemsize or dtype.subdtype is not None:
        return None
    if dtype.kind in "Mm":
        return dtype.name
    if dtype.type in LONG:
        return LONG[dtype.type]
    if dtype.type is not np.void:
        return _NAMES.get(dtype)
    if dtype.names is None:
        return f"V{dtype.itemsize}"
    if dtype in _NAMES:
        return _NAMES[dtype]
    text = repr(np.lib.format.dtype_to_descr(dtype))
    return text if _numpy_type(text) == dtype else None  # a field of a type of ml_dtypes would be only bytes


@lru_cache(maxsize=256)
def _of_numpy(dtype: np.dtype[Any]) -> DType | None:
    name = _name_of(dtype if dtype.type is np.void else dtype.newbyteorder("="))
    return None if name is None else DType.named(name)


_NUMPY: Final[dict[int, tuple[str, Any]]] = {
    1: ("float32", np.float32),
    2: ("float64", np.float64),
    3: ("int32", np.int32),
    4: ("uint8", np.uint8),
    5: ("int16", np.int16),
    6: ("int8", np.int8),
    7: ("string", np.object_),
    8: ("complex64", np.complex64),
    9: ("int64", np.int64),
    10: ("bool", np.bool_),
    11: ("qint8", _quantised("qint8", np.int8)),
    12: ("quint8", _quantised("quint8", np.uint8)),
    13: ("qint32", _quantised("qint32", np.int32)),
    14: ("bfloat16", ml_dtypes.bfloat16),
    15: ("qint16", _quantised("qint16", np.int16)),
    16: ("quint16", _quantised("quint16", np.uint16)),
    17: ("uint16", np.uint16),
    18: ("complex128", np.complex128),
    19: ("float16", np.float16),
    21: ("variant", np.object_),
    22: ("uint32", np.uint32),
    23: ("uint64", np.uint64),
    24: ("float8_e5m2", ml_dtypes.float8_e5m2),
    25: ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    26: ("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
    27: ("float8_e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz),
    28: ("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
    29: ("int4", ml_dtypes.int4),
    30: ("uint4", ml_dtypes.uint4),
    31: ("int2", getattr(ml_dtypes, "int2", None)),
    32: ("uint2", getattr(ml_dtypes, "uint2", None)),
    33: ("float4_e2m1fn", getattr(ml_dtypes, "float4_e2m1fn", None)),
}

_BY_NUMBER: Final[dict[int, DType]] = {
    number: DType(name, number, np.dtype(base)) for number, (name, base) in _NUMPY.items() if base is not None
}
# old frameworks need an ml_dtypes that lacks some of these types
_UNAVAILABLE: Final[dict[int, str]] = {number: name for number, (name, base) in _NUMPY.items() if base is None}
_BY_NAME: Final[dict[str, DType]] = {dtype.name: dtype for dtype in _BY_NUMBER.values()}
# `variant` and `string` both have `object`; an object array holds strings if the caller does not say otherwise
_BY_NUMPY: Final[dict[np.dtype[Any], DType]] = {d.numpy: d for d in _BY_NUMBER.values() if d.name != "variant"}

_LONGEST_RECORD: Final = 1 << 14
"""The most characters of the description of a record."""
_SMALL_INTEGERS: Final = [f"{sign}int{bits}" for sign in ("", "u") for bits in (1, 3, 5, 6, 7)]
_WIDTHS: Final = {
    **dict.fromkeys(["float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn"], 1),
    **dict.fromkeys([*_SMALL_INTEGERS, "float4_e2m1fn_x2", "bits8", "bits1x8", "bits2x4", "bits4x2"], 1),
    "bits16": 2,
    "complex32": 4,
    "bcomplex32": 4,
}
"""The types of ml_dtypes and PyTorch that TensorFlow lacks, each with the bytes of an element."""
_FORMATS: Final = {63: ("float80", "complex160"), 112: ("float128", "complex256")}
"""The formats of `numpy.longdouble` by the bits of its fraction: that of x87, and binary128 of IEEE 754."""
LONG: Final[dict[type[np.generic], str]] = dict(
    zip((np.longdouble, np.clongdouble), _FORMATS.get(np.finfo(np.longdouble).nmant, ()), strict=False)
)
"""The types of NumPy that have these formats on this machine, each with its name. On some there are none."""
_NAMES: Final = {_numpy_type(name): name for name in _WIDTHS}
_NAMED: Final[WeakValueDictionary[str, DType]] = WeakValueDictionary()
"""The types without number that are in use, by name."""
_KEPT: Final = [DType.named(name) for name in _WIDTHS]
_BY_NUMPY.update((each.numpy, each) for each in _KEPT)

STRING: Final[DType] = _BY_NAME["string"]
VARIANT: Final[DType] = _BY_NAME["variant"]
