"""NumPy's arrays and numbers in pickled data, in the forms of all versions of NumPy.

::

    dtype("f4", False, True)  state (3, "<", ...)                 an element type and its byte order
    _reconstruct(class, (0,), b"b")  state (1, shape, dtype, is_fortran, bytes)
    scalar(dtype, bytes)
    _frombuffer(bytes, dtype, shape, "C" or "F")                  with protocol 5

The module is ``numpy.core`` before NumPy 2, and ``numpy._core`` since. Arrays of Python objects hold a list instead of bytes.
Source: NumPy 2.3, ``ndarray.__reduce__``, ``ndarray.__reduce_ex__``, observed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from milepost.errors import MilepostError, UnsupportedError
from milepost.foreign.opaque import Name, Opaque
from milepost.foreign.pytorch import pickled
from milepost.foreign.shapes import is_shape
from milepost.tensor import DType
from milepost.tensor.numpy_types import numpy_type

_LONGEST_TYPE: Final = 8
_ARRAY: Final = Name("numpy", "ndarray")
_TYPE: Final = Name("numpy", "dtype")


class UnbuiltArray(pickled.Unbuilt):
    """An array or an element type whose state is not set yet."""

    __slots__ = ()


class ElementType(UnbuiltArray):
    """An element type.

    Args:
        text: NumPy's name of it, with the byte order.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__(_TYPE, sealed=True)
        self.text = text

    def numpy(self) -> np.dtype[Any]:
        """The type.

        Raises:
            UnsupportedError: Its values are not numbers, or milepost cannot store them.
        """
        try:
            dtype = numpy_type(self.text)
            if dtype.kind not in "biufc":
                raise UnsupportedError("values of this NumPy type are not read", found=dtype)
            DType.of(dtype)
        except (MilepostError, ValueError):
            raise UnsupportedError(
                "NumPy values of this type are not read from PyTorch files",
                expected="numbers",
                found=f"{self.text!s:.40}",
                remedy=_REMEDY,
            ) from None
        return dtype


_REMEDY: Final = (
    "load the file with torch.load where it was made, turn the array into numbers or a list, and save it again"
)


def built(unbuilt: UnbuiltArray, state: Any) -> Any:
    """An array or an element type after its state is set."""
    if isinstance(unbuilt, ElementType):
        return _with_order(unbuilt, state)
    _, shape, dtype, fortran, data = state
    if isinstance(dtype, ElementType) and isinstance(data, list):
        return Opaque(_ARRAY, tuple(data))
    return _array(data, dtype, shape, fortran=bool(fortran))


def refusal(opaque: Opaque) -> UnsupportedError | None:
    """The error that says why an array or an element type is not read; None if the object is neither."""
    if opaque.name is _TYPE:
        return UnsupportedError(
            "this is an element type of NumPy, and not a value",
            expected="a tensor, a number or text",
            found="numpy.dtype",
            remedy="save its name as text",
        )
    if opaque.name is not _ARRAY:
        return None
    if opaque.state is not None:
        try:
            _numbers(*opaque.state)
        except UnsupportedError as error:
            return error
    return UnsupportedError(
        "arrays of Python objects are not read from PyTorch files",
        expected="arrays of numbers",
        found=f"an array of {len(opaque.arguments)} objects",
        remedy=_REMEDY,
    )


def _with_order(dtype: ElementType, state: Any) -> ElementType:
    if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
        raise TypeError("not an element type of NumPy")
    return ElementType(f"{state[1].replace('=', '')}{dtype.text.lstrip('<>|=')}")


def _array(data: Any, dtype: Any, shape: Any, *, fortran: bool) -> Any:
    try:
        return _numbers(data, dtype, shape, fortran)
    except UnsupportedError:
        return Opaque(_ARRAY, (), (data, dtype, shape, fortran), sealed=True)


def _numbers(data: Any, dtype: Any, shape: Any, fortran: Any) -> Any:
    if isinstance(data, str):
        data = data.encode()  # a byte string of Python 2 that was read as text
    if not isinstance(dtype, ElementType) or not isinstance(data, (bytes, bytearray)) or not is_shape(shape, tuple):
        raise TypeError("not an array of NumPy")
    array = np.frombuffer(data, dtype.numpy()).reshape(shape, order="F" if fortran else "C")
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(shape)


def _element_type(text: Any, *rest: Any) -> ElementType | Opaque:
    if isinstance(text, bytes):
        text = text.decode()
    if not isinstance(text, str) or len(text) > _LONGEST_TYPE:
        return Opaque(_TYPE, (text,), sealed=True)
    return ElementType(text)


def _scalar(dtype: Any, data: Any) -> Any:
    if isinstance(data, str):
        data = data.encode()
    if not isinstance(dtype, ElementType):
        raise TypeError("not a number of NumPy")
    numpy_dtype = dtype.numpy()
    if not isinstance(data, bytes):
        raise TypeError("not a number of NumPy")
    return np.frombuffer(data, numpy_dtype, 1).astype(numpy_dtype.newbyteorder("="))[0]


def _reconstruct(*_: Any) -> UnbuiltArray:
    return UnbuiltArray(_ARRAY, sealed=True)


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any = "C", *rest: Any) -> Any:
    if order not in ("C", "F"):
        raise ValueError("not an order of elements")
    return _array(data, dtype, shape, fortran=order == "F")


_MODULES: Final = ("numpy.core", "numpy._core")
MAKERS: Final[dict[tuple[str, ...], Callable[..., Any]]] = {
    ("numpy", "dtype"): _element_type,
    **{(f"{module}.multiarray", "scalar"): _scalar for module in _MODULES},
    **{(f"{module}.multiarray", "_reconstruct"): _reconstruct for module in _MODULES},
    **{(f"{module}.numeric", "_frombuffer"): _from_buffer for module in _MODULES},
}
