"""`Variable`: a NumPy array that can be changed in place and is saved."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from milepost.errors import MismatchError
from milepost.graph.adapter import ANY_SHAPE, Adapter, Array, Shape, Value
from milepost.graph.conversion import array_of, converted
from milepost.graph.description import of_variable
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType
from milepost.tensor.bounds import check_bounds
from milepost.tensor.spec import format_shape


def as_array(value: Any, dtype: Any = None) -> Array:
    """Turns a value into an array of a storable type, by TensorFlow's rules for Python numbers.

    Python's ``float`` becomes float32, ``int`` int32 (int64 if it does not fit), ``complex`` complex128, text and
    bytes become byte strings. Arrays keep their dtype.

    Args:
        value: Anything `numpy.asarray` accepts.
        dtype: The requested element type, as for `DType.of`. A value is rounded to it, but not changed otherwise
            (`milepost.graph.conversion`).

    Raises:
        UnsupportedError: TensorFlow has no number for the element type.
        MismatchError: The value is None, cannot be an array, or has no equal in the requested type.
    """
    wanted = None if dtype is None else DType.of(dtype)
    if isinstance(value, Variable):
        value = value._array
    if wanted is not None and wanted.name == "variant":
        return np.asarray(value, object)
    if value is None and (wanted is None or wanted.is_bytes):
        raise MismatchError(
            "a variable cannot hold None",
            expected="a number, text, bytes, or nested lists or an array of them",
            found="None",
            remedy="give an initial value of the type that it is to have, such as 0.0",
        )
    array = array_of(value) if wanted is None or wanted.is_bytes else converted(value, wanted)
    if array.dtype.kind in "SU" and not isinstance(value, np.ndarray):
        array = np.asarray(value, object)  # NumPy's strings lose zeros at their end
    if wanted is None and not isinstance(value, (np.ndarray, np.generic)) and not _holds_arrays(value):
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        elif array.dtype == np.int64 and _fits_int32(array):
            array = array.astype(np.int32)
    array_dtype = DType.of(array.dtype)
    if wanted is not None and wanted.is_bytes and not array_dtype.is_bytes and array.size:
        raise MismatchError(
            "a number cannot be stored in a variable of dtype string",
            expected="text or bytes",
            found=repr(value)[:80],
            remedy="assign str(value), or make the variable with a number",
        )
    if array_dtype.is_bytes or (wanted is not None and wanted.is_bytes):
        return _as_strings(array, value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _as_strings(array: Array, value: Any) -> Array:
    """An array of text and bytes as one of bytes only.

    Args:
        array: The array.
        value: What it was made of, for errors.
    """
    try:
        flat = [each.encode() if isinstance(each, str) else each for each in array.reshape(-1).tolist()]
    except UnicodeEncodeError:
        raise MismatchError(
            "text that is not valid Unicode cannot be stored",
            expected="text that has a form in UTF-8",
            found=ascii(value)[:80],
            remedy="give it as bytes, as text.encode('utf-8', 'surrogateescape') makes them",
        ) from None
    if not all(isinstance(each, bytes) for each in flat):
        raise MismatchError(
            "an array of objects can hold only text and bytes",
            expected="elements that are text or bytes",
            found=repr(value)[:80],
            remedy="hold numbers in an array of a number type, and other objects in lists or dicts",
        )
    strings = np.empty(len(flat), object)
    strings[:] = flat
    return strings.reshape(array.shape)


def own(array: Array) -> Array:
    """The array itself if no other object uses its memory; otherwise a copy."""
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    return array if memory.flags.owndata else array.copy()


def _fits_int32(array: Array) -> bool:
    limits = np.iinfo(np.int32)
    return not array.size or bool(limits.min <= array.min() and array.max() <= limits.max)


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_arrays(item) for item in value)
    return hasattr(value, "dtype")


class Variable(NDArrayOperatorsMixin):
    """A value that can be changed in place and is saved. In all else it behaves like a NumPy array.

    Args:
        initial_value: A number, text, nested lists of them, an array, or another variable. It is copied.
        dtype: Element type: a NumPy dtype or name, or a TensorFlow name. By default that of the array, and for
            Python numbers TensorFlow's: float32, int32, complex128, string.
        name: The name of the variable, by which name-based (TensorFlow 1) checkpoints are matched. Object-based checkpoints
            do not use it.
        trainable: Whether `Module.trainable_variables` lists it.
        shape: The dimensions, with None for a dimension of any length. By default those of the initial value.

    Raises:
        UnsupportedError: TensorFlow has no number for the element type.
        MismatchError: The initial value is None, cannot be an array, does not fit ``shape``, or has no equal in ``dtype``.

    Example:
        >>> v = Variable([1.0, 2.0])
        >>> v += 1
        >>> v * 2
        array([4., 6.], dtype=float32)
        >>> v
        <milepost.Variable shape=(2,) dtype=float32, numpy=array([2., 3.], dtype=float32)>
    """

    __slots__ = ("__weakref__", "_array", "_dtype", "_shape", "name", "trainable")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        initial_value: Any,
        dtype: Any = None,
        *,
        name: str | None = None,
        trainable: bool = True,
        shape: Sequence[int | None] | None = None,
    ) -> None:
        array = as_array(initial_value, dtype)
        self._array: Array = np.array(array, order="C", copy=True)
        self._dtype = DType.of(array.dtype) if dtype is None else DType.of(dtype)
        self._shape: Shape = self._array.shape if shape is None else tuple(shape)
        self.name = name
        self.trainable = trainable
        self._check_shape(self._array)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype. For strings it is ``object``, and the elements are ``bytes``."""
        dtype: np.dtype[Any] = self._array.dtype
        return dtype

    @property
    def tensor_dtype(self) -> DType:
        """The element type, as files have it."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the present value."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def static_shape(self) -> Shape:
        """The dimensions that every value must have, with None for a dimension of any length."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self._array.nbytes

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """A transposed view of the value."""
        return self._array.T

    def numpy(self) -> Array:
        """A copy of the value. ``numpy.asarray(variable)`` is the value itself, which follows later changes."""
        return self._array.copy()

    def value(self) -> Array:
        """The value itself, as a read-only view that follows later changes."""
        view = self._array.view()
        view.flags.writeable = False
        return view

    def read_value(self) -> Array:
        """A copy of the value."""
        return self._array.copy()

    def assign(self, value: Any) -> Self:
        """Replaces the value.

        Args:
            value: A value of the same shape, or of one that `static_shape` allows. It is converted to the dtype of the variable
                if that changes at most the precision of a floating-point number: 2.0 is stored as the ``int32`` 2.

        Raises:
            MismatchError: The shape does not fit, or the dtype of the variable has no such value: for example 0.93 as an integer,
                2 as a ``bool``, -1 as an unsigned integer, 1e300 as a ``float32``. Nothing was changed.
        """
        array = self._fitting(value)
        if array.shape != self._array.shape:
            self._check_shape(array)
            self._array = np.array(array, order="C", copy=True)
        else:
            self._array[...] = array
        return self

    def assign_add(self, delta: Any) -> Self:
        """Adds ``delta`` to the value. Arguments and errors are those of `assign`."""
        return self.assign(self._array + self._fitting(delta))

    def assign_sub(self, delta: Any) -> Self:
        """Subtracts ``delta`` from the value. Arguments and errors are those of `assign`."""
        return self.assign(self._array - self._fitting(delta))

    def __copy__(self) -> Variable:
        # as in NumPy, where a copy of an array has its own memory
        return Variable(self._array, self._dtype, name=self.name, trainable=self.trainable, shape=self._shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is not None and np.dtype(dtype) != self._array.dtype:
            if copy is False:
                raise ValueError(
                    f"a variable of type {self._array.dtype} cannot be converted to {np.dtype(dtype)} without a copy"
                )
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        plain = [each._array if isinstance(each, Variable) else each for each in inputs]
        if out is None:
            return getattr(ufunc, method)(*plain, **kwargs)
        kwargs["out"] = tuple(each._array if isinstance(each, Variable) else each for each in out)
        try:
            for number, into in itertools.product(plain, out):
                if isinstance(into, Variable):
                    check_bounds(number, into._array.dtype)
            getattr(ufunc, method)(*plain, **kwargs)
        except (TypeError, OverflowError) as error:
            into = next((each for each in out if isinstance(each, Variable)), None)
            if into is None:
                raise
            raise MismatchError(
                f"the result of {ufunc.__name__} does not fit the variable it is to be stored in",
                key=into.name,
                expected=f"a result of type {into._dtype}",
                found=str(error),
                remedy="make the variable with a dtype that holds the result, or convert the result and assign() it",
            ) from None
        return out[0] if len(out) == 1 else out

    def __matmul__(self, other: Any) -> Any:
        return self._array @ (other._array if isinstance(other, Variable) else other)

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self._array

    if TYPE_CHECKING:
        # `v += 1` changes the variable in place, and `v` stays a Variable; NumPy's annotations say `Any`.
        def __iadd__(self, other: Any) -> Self: ...
        def __isub__(self, other: Any) -> Self: ...
        def __imul__(self, other: Any) -> Self: ...
        def __imatmul__(self, other: Any) -> Self: ...
        def __itruediv__(self, other: Any) -> Self: ...
        def __ifloordiv__(self, other: Any) -> Self: ...
        def __imod__(self, other: Any) -> Self: ...
        def __ipow__(self, other: Any) -> Self: ...
        def __ilshift__(self, other: Any) -> Self: ...
        def __irshift__(self, other: Any) -> Self: ...
        def __iand__(self, other: Any) -> Self: ...
        def __ixor__(self, other: Any) -> Self: ...
        def __ior__(self, other: Any) -> Self: ...

        # Attributes of arrays. A `__getattr__` would make type checkers accept every name.
        all: Callable[..., Any]
        any: Callable[..., Any]
        argmax: Callable[..., Any]
        argmin: Callable[..., Any]
        argpartition: Callable[..., Any]
        argsort: Callable[..., Any]
        astype: Callable[..., Any]
        base: Any
        byteswap: Callable[..., Any]
        choose: Callable[..., Any]
        clip: Callable[..., Any]
        compress: Callable[..., Any]
        conj: Callable[..., Any]
        conjugate: Callable[..., Any]
        copy: Callable[..., Any]
        ctypes: Any
        cumprod: Callable[..., Any]
        cumsum: Callable[..., Any]
        data: Any
        device: Any
        diagonal: Callable[..., Any]
        dot: Callable[..., Any]
        dump: Callable[..., Any]
        dumps: Callable[..., Any]
        fill: Callable[..., Any]
        flags: Any
        flat: Any
        flatten: Callable[..., Any]
        getfield: Callable[..., Any]
        imag: Any
        item: Callable[..., Any]
        itemsize: Any
        mT: Any  # noqa: N815 - NumPy's name
        max: Callable[..., Any]
        mean: Callable[..., Any]
        min: Callable[..., Any]
        nonzero: Callable[..., Any]
        partition: Callable[..., Any]
        prod: Callable[..., Any]
        put: Callable[..., Any]
        ravel: Callable[..., Any]
        real: Any
        repeat: Callable[..., Any]
        reshape: Callable[..., Any]
        resize: Callable[..., Any]
        round: Callable[..., Any]
        searchsorted: Callable[..., Any]
        setfield: Callable[..., Any]
        setflags: Callable[..., Any]
        sort: Callable[..., Any]
        squeeze: Callable[..., Any]
        std: Callable[..., Any]
        strides: Any
        sum: Callable[..., Any]
        swapaxes: Callable[..., Any]
        take: Callable[..., Any]
        to_device: Callable[..., Any]
        tobytes: Callable[..., Any]
        tofile: Callable[..., Any]
        tolist: Callable[..., Any]
        trace: Callable[..., Any]
        transpose: Callable[..., Any]
        var: Callable[..., Any]
        view: Callable[..., Any]
    else:

        def __getattr__(self, name: str) -> Any:
            # Methods of arrays (sum, reshape, tolist, ...) work on the value.
            if name.startswith("_"):
                raise AttributeError(f"a Variable has no attribute {name!r}", name=name, obj=self)
            try:
                return getattr(self._array, name)
            except AttributeError:
                raise AttributeError(f"a Variable has no attribute {name!r}", name=name, obj=self) from None

    def __getitem__(self, index: Any) -> Any:
        return self._array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = self._fitting(value)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._array)

    def __contains__(self, value: Any) -> bool:
        return value in self._array

    def __bool__(self) -> bool:
        return bool(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __complex__(self) -> complex:
        return complex(self._array)

    def __index__(self) -> int:
        return operator.index(self._array)

    def __format__(self, spec: str) -> str:
        return format(self._array[()], spec) if spec and not self._array.ndim else format(str(self), spec)

    def __repr__(self) -> str:
        try:
            return of_variable(self.name, self._shape, self._dtype, self._array)
        except AttributeError:  # during __init__(), or without it
            return "<milepost.Variable, not initialized>"

    def _fitting(self, value: Any) -> Array:
        """The value with the dtype of the variable. Errors are those of `assign`."""
        try:
            return as_array(value, self._dtype)
        except MismatchError as error:
            raise error.with_context(key=self.name) from None

    def _check_shape(self, array: Array) -> None:
        if not shape_fits(array.shape, self._shape):
            raise MismatchError(
                "this value does not have the variable's shape",
                key=self.name,
                expected=f"[{format_shape(self._shape)}]",
                found=f"[{format_shape(array.shape)}]",
                remedy="reshape the value, or make the variable with a shape that has None where the length may differ",
            )


def shape_fits(found: Sequence[int], allowed: Shape) -> bool:
    """Whether ``allowed`` allows a shape. In it, None is any length, and `ANY_SHAPE` any shape."""
    if allowed == ANY_SHAPE:
        return True
    return len(found) == len(allowed) and all(
        want is None or have == want for have, want in zip(found, allowed, strict=True)
    )


class VariableAdapter(Adapter):
    """`Variable`: one value, restored in place."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Variable)

    def values(self, obj: Variable) -> Sequence[Value]:
        array = obj._array
        in_place = not obj._dtype.is_bytes and None not in obj._shape
        return (Value(VARIABLE_VALUE, obj._dtype, obj._shape, array, array if in_place else None, obj.name or ""),)

    def assign(self, obj: Variable, arrays: Mapping[str, Array]) -> Variable:
        array = arrays[VARIABLE_VALUE]
        return obj if array is obj._array else obj.assign(array)
