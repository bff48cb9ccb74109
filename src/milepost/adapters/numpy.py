"""NumPy arrays and scalars as values.

A writable array is restored in place, whatever its strides. A read-only array or a scalar is replaced in the object that holds it.

Files hold elements in the byte order of the machine, text as UTF-8, and rows one after the other. An array that differs has hints in the
object graph (`milepost.graph.saved.hints`), which `milepost.load` uses::

    dtype     NumPy's name of the element type: "<U3", "|S8", "StringDType()" for text, ">f4" for the other byte order; "str" for
              an array of objects that are all of this type
    fortran   true if columns follow one another in memory, and not rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, MismatchError, UnsupportedError
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.omissions import Omission
from milepost.graph.variable import as_array
from milepost.plain_state.arrays import Padding, dtype_of, from_stored, type_name
from milepost.tensor import DType, TensorSpec

_NUMBERS: Final = {dtype.numpy: dtype for dtype in DType.all() if not dtype.is_bytes}
"""The element types that files hold as they are in memory, by those of NumPy."""
DTYPE: Final = "dtype"
FORTRAN: Final = "fortran"
_STR: Final = "str"
_NO_HINTS: Final[Mapping[str, Array]] = MappingProxyType({})
_TEXT: Final = "SUT"
"""The kinds of NumPy's types of bytes and text."""
_DECODED: Final = "UT"
"""Those of text."""


class NumpyArrayAdapter(Adapter):
    """`numpy.ndarray`: one value."""

    leaf = True
    array_type = "numpy.ndarray"

    def handles(self, kind: type) -> bool:
        return issubclass(kind, np.ndarray)

    def is_value(self, obj: Array) -> bool:
        return True

    def is_new_array(self, obj: Array) -> bool:
        return type(obj) is np.ndarray and (obj.dtype in _NUMBERS or self.omission(obj) is None)

    def new_array(self, spec: TensorSpec, hints: Mapping[str, Array]) -> Array | None:
        if spec.dtype.is_bytes:
            return None  # NumPy has several types of text
        dtype = dtype_of(str(hints[DTYPE])) if DTYPE in hints else spec.dtype.numpy
        return np.empty(spec.shape, dtype, order="F" if FORTRAN in hints else "C")

    def tracks(self, obj: Array) -> bool:
        return (type(obj) is np.ndarray and obj.dtype in _NUMBERS) or self.omission(obj) is None

    def omission(self, obj: Array) -> Omission | None:
        if isinstance(obj, np.ma.MaskedArray):
            return Omission("the mask of a masked array would be lost", "hold its data and its mask as two arrays")
        try:
            dtype = DType.of(obj.dtype)
        except UnsupportedError:
            return Omission(f"files cannot hold an array of {obj.dtype}")
        if dtype.is_bytes and not all(isinstance(each, (bytes, str)) for each in obj.reshape(-1).tolist()):
            return Omission("an array of objects that are not all text or bytes")
        return None

    def values(self, obj: Array) -> Sequence[Value]:
        dtype = _NUMBERS.get(obj.dtype)
        if dtype is not None:
            return (Value(VARIABLE_VALUE, dtype, obj.shape, obj, obj if obj.flags.carray else None),)
        dtype = DType.of(obj.dtype)
        source = partial(as_array, obj.astype(object) if obj.dtype.kind == "T" else obj) if dtype.is_bytes else obj
        in_place = obj if obj.flags.carray and obj.dtype == dtype.numpy and not dtype.is_bytes else None
        return (Value(VARIABLE_VALUE, dtype, obj.shape, source, in_place),)

    def hints_to_save(self, obj: Array) -> Mapping[str, Array]:
        name = "" if obj.dtype in _NUMBERS else _name_of_type(obj)
        if not name and not obj.flags.fnc:
            return _NO_HINTS
        return ({DTYPE: np.array(name)} if name else {}) | ({FORTRAN: np.array(True)} if obj.flags.fnc else {})

    def may_refuse(self, obj: Array) -> bool:
        return obj.dtype.kind in _DECODED  # the saved bytes may not be text

    def assign(self, obj: Array, arrays: Mapping[str, Array]) -> Array:
        array = arrays[VARIABLE_VALUE]
        if array is obj:
            return obj
        if obj.dtype.kind in _DECODED:
            array = _decoded(array)
        if not obj.flags.writeable or (array.dtype.itemsize > obj.dtype.itemsize and obj.dtype.kind in "SU"):
            successor = array.astype(obj.dtype.kind if obj.dtype.kind in "SU" else obj.dtype, copy=False)
            successor.flags.writeable = obj.flags.writeable
            return successor
        obj[...] = array
        return obj


def is_swapped(hints: Mapping[str, Array]) -> bool:
    """Whether an array of numbers had another byte order than that of this machine when it was saved."""
    name = str(hints.get(DTYPE, ""))
    return name[:1] in ("<", ">") and name[1:2] not in ("U", "S") and not np.dtype(name).isnative


def as_hinted(array: Array, hints: Mapping[str, Array], padding: Padding) -> Array:
    """An array as it was when it was saved.

    Args:
        array: The saved elements.
        hints: Its hints, as `NumpyArrayAdapter.hints_to_save` gave them.
        padding: That of the arrays before it in the same file.

    Raises:
        CorruptCheckpointError: These are not the hints of an array of such elements.
    """
    name = str(hints.get(DTYPE, ""))
    try:
        if name == _STR and array.dtype.hasobject:
            array = _decoded(array).astype(object)
        elif name:
            array = from_stored(array, name, padding)
    except (MismatchError, UnicodeDecodeError):
        raise CorruptCheckpointError(
            "an array of text holds other bytes", expected="UTF-8", found=name, remedy="restore another checkpoint"
        ) from None
    return np.asfortranarray(array) if FORTRAN in hints else array


def _name_of_type(array: Array) -> str:
    """The name of the element type of an array, if it does not follow from the elements in the file; otherwise empty."""
    kind = array.dtype.kind
    if kind == "O":
        return _STR if array.size and all(type(each) is str for each in array.reshape(-1).tolist()) else ""
    if kind in _TEXT:
        return type_name(array.dtype) if Padding().fits(array.nbytes, array) else ""
    return "" if array.dtype.isnative or kind == "V" else type_name(array.dtype)


def _decoded(array: Array) -> Array:
    """An array of text, of one of UTF-8."""
    try:
        return np.array([each.decode() for each in array.reshape(-1).tolist()]).reshape(array.shape)
    except UnicodeDecodeError as error:
        raise MismatchError(
            "an array of text cannot hold these bytes",
            expected="UTF-8",
            found=repr(error.object)[:80],
            remedy="restore into an array of bytes, of dtype 'S'",
        ) from error


class ScalarAdapter(Adapter):
    """NumPy scalars such as ``numpy.float32(1)``: one value without dimensions."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, np.generic)

    def tracks(self, obj: np.generic) -> bool:
        return obj.dtype in _NUMBERS or self.omission(obj) is None

    def omission(self, obj: np.generic) -> Omission | None:
        try:
            DType.of(obj.dtype)
        except UnsupportedError:
            return Omission(f"files cannot hold a scalar of {obj.dtype}")
        return None

    def values(self, obj: np.generic) -> Sequence[Value]:
        return (Value(VARIABLE_VALUE, DType.of(obj.dtype), (), lambda: as_array(obj)),)

    def assign(self, obj: np.generic, arrays: Mapping[str, Array]) -> Any:
        element: Any = arrays[VARIABLE_VALUE][()]
        if type(element) is type(obj):
            return element
        return type(obj)(element.decode() if isinstance(obj, np.str_) else element)


register(NumpyArrayAdapter())
register(ScalarAdapter())
