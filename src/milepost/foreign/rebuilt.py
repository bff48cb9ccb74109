"""What the names in a PyTorch file stand for: tensors and plain data. Nothing of PyTorch is needed to know that.

The list is what `torch.load` itself accepts with ``weights_only=True``, as far as it has a value: no sparse, quantised or
nested tensors, no tensors on the meta device, no classes of users; and NumPy's scalars and arrays, which `torch.load` refuses.
Source: PyTorch 2.13, ``torch/_weights_only_unpickler.py``, ``torch/_utils.py``.
"""

from __future__ import annotations

import math
import reprlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign.pickled import Name, check_keys, needs_code
from milepost.foreign.stored import Stored, raw_bytes
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.plain_keys import KeyCheck
from milepost.tensor import DType, TensorSpec

_MOST_REPEATED: Final = 64 << 20
"""Bytes that a tensor may take more than its storage, where one element stands for many."""
_MOST_DIMENSIONS: Final = 64
_BUILT_INS: Final = ("builtins", "__builtin__")

_STORAGES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "UntypedStorage": "uint8",
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
}
_DTYPES: Final = {
    **{name: name for name in _STORAGES.values()},
    **{name: name for name in ("uint16", "uint32", "uint64")},
    **{name: name for name in ("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz")},
    **dict.fromkeys(("double",), "float64"),
    **dict.fromkeys(("float",), "float32"),
    **dict.fromkeys(("half",), "float16"),
    **dict.fromkeys(("long",), "int64"),
    **dict.fromkeys(("int",), "int32"),
    **dict.fromkeys(("short",), "int16"),
    **dict.fromkeys(("cfloat",), "complex64"),
    **dict.fromkeys(("cdouble",), "complex128"),
}
_BYTES: Final = {"float8_e8m0fnu": 1, "complex32": 4, "bits8": 1, "bits16": 2}
"""Element types that TensorFlow has no number for, with their bytes."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A run of bytes in a file that tensors are made of.

    Attributes:
        key: Its name in the file.
        dtype: Element type, by PyTorch's name.
        nbytes: Its length.
    """

    key: str
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class View:
    """Which elements of a storage a tensor has.

    Attributes:
        storage: The storage.
        offset: The first element, in bytes.
        strides: Bytes from one element to the next in each dimension; None where they follow each other.
    """

    storage: Storage
    offset: int
    strides: tuple[int, ...] | None


class Symbol(str):
    """A device or an element type, by its name."""

    __slots__ = ()


def element_size(dtype: str) -> int:
    """Bytes of an element of a type by PyTorch's name.

    Raises:
        UnsupportedError: Milepost cannot read tensors of this type.
    """
    if dtype in _BYTES:
        return _BYTES[dtype]
    if dtype in _DTYPES:
        return DType.of(_DTYPES[dtype]).itemsize
    raise UnsupportedError(
        "milepost cannot read PyTorch tensors of this element type",
        found=f"torch.{dtype:.80}",
        expected="one of " + ", ".join(sorted({*_DTYPES, *_BYTES})),
    )


def storage_of(kind: Any, key: Any, count: Any) -> Storage:
    """The storage that a persistent id names.

    Args:
        kind: The class of the storage, or its element type.
        key: Its name in the file.
        count: Elements in it.
    """
    name = kind.name if isinstance(kind, Name) and kind.module in ("torch", "torch.storage", "torch.cuda") else None
    if name not in _STORAGES or not isinstance(key, str) or not _is_count(count):
        raise UnsupportedError(
            "milepost cannot read PyTorch storages of this kind",
            found=str(kind) if isinstance(kind, Name) else f"a {type(kind).__name__}",
            expected=", ".join(_STORAGES),
        )
    dtype = _STORAGES[name]
    return Storage(key, dtype, count * element_size(dtype))


def meaning(name: Name) -> Any:
    """What stands for a name in a file: an element type by its name, and else the name itself, until it is called."""
    if name.module == "torch" and (name.name in _DTYPES or name.name in _BYTES):
        return Symbol(f"torch.{name.name}")
    return name


def call(name: Name, arguments: tuple[Any, ...]) -> Any:
    """What calling a name would give.

    Raises:
        UnsupportedError: It would take running code.
        CorruptCheckpointError: The arguments are not those of such a call.
    """
    maker = _MAKERS.get((name.module, name.name))
    if maker is None:
        reason = _REFUSED.get(name.name) if name.module in ("torch._utils", "torch._tensor") else None
        if reason is not None:
            raise UnsupportedError(
                f"the PyTorch file holds {reason}, which milepost does not read",
                found=str(name),
                remedy="load it with torch.load, make plain tensors of it, and save with milepost",
            )
        raise needs_code(name)
    return maker(*arguments)


def build(obj: Any, state: Any) -> Any:
    """An object with its state; attributes of dicts, such as the versions that PyTorch notes, are of no account."""
    if isinstance(obj, (OrderedDict, defaultdict, Counter)):
        return obj
    if isinstance(obj, _NumPyType):
        return obj.with_state(state)
    if isinstance(obj, _NumPyArray):
        return obj.with_state(state)
    raise TypeError(f"no state can be set here: {type(obj).__name__}")


def _tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Stored:
    if not isinstance(storage, Storage):
        raise TypeError("a tensor without a storage")
    _check_flags(rest[2] if len(rest) > 2 else None)
    return _tensor(storage, storage.dtype, offset, size, stride)


def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> Stored:
    if not isinstance(storage, Storage) or not isinstance(dtype, Symbol):
        raise TypeError("a tensor without a storage, or without an element type")
    _check_flags(rest[0] if rest else None)
    return _tensor(storage, dtype.removeprefix("torch."), offset, size, stride)


def _check_flags(flags: Any) -> None:
    if isinstance(flags, dict) and any(flags.values()):
        raise UnsupportedError(
            "a tensor whose values are the conjugates or negatives of what is in the file",
            found=", ".join(f"{name!s:.40}" for name, value in flags.items() if value),
            remedy="save it after resolve_conj() and resolve_neg()",
        )


def _tensor(storage: Storage, dtype: str, offset: Any, size: Any, stride: Any) -> Stored:
    width = element_size(dtype)
    if not _are_counts(size) or not _are_counts(stride) or len(size) != len(stride) or not _is_count(offset):
        raise ValueError("a tensor with an impossible shape")
    count = math.prod(size)
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) if count else offset
    if count and (last + 1) * width > storage.nbytes:
        raise CorruptCheckpointError(
            "a tensor reaches beyond its storage",
            expected=f"at least {(last + 1) * width} bytes for a tensor of shape {tuple(size)}",
            found=f"{storage.nbytes} bytes",
        )
    if count * width > storage.nbytes + _MOST_REPEATED:
        raise UnsupportedError(
            "a tensor in which few stored elements stand for very many",
            expected=f"at most {_MOST_REPEATED >> 20} MiB more than is stored",
            found=f"shape {tuple(size)}, of {storage.nbytes} stored bytes",
            remedy="save its contiguous() copy",
        )
    shape = tuple(size)
    if dtype in _BYTES:
        spec, local = raw_bytes(dtype, width, shape)
    else:
        spec, local = TensorSpec(DType.of(_DTYPES[dtype]), shape), VARIABLE_VALUE
    in_order = count == 0 or _is_in_order(shape, stride)
    strides = None if in_order else tuple(step * width for step in stride)
    return Stored(spec, View(storage, offset * width, strides), local)


def _is_in_order(size: tuple[int, ...], stride: Any) -> bool:
    expected = 1
    for length, step in zip(reversed(size), reversed(stride), strict=True):
        if length != 1 and step != expected:
            return False
        expected *= length
    return True


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _are_counts(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) <= _MOST_DIMENSIONS and all(map(_is_count, value))


def _parameter(data: Any, *rest: Any) -> Stored:
    if not isinstance(data, Stored):
        raise TypeError("a parameter that is no tensor")
    return data


def _from_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor of a class with attributes; those of PyTorch's own say nothing of its value."""
    if not isinstance(function, Name) or not isinstance(arguments, tuple):
        raise TypeError("no tensor of a class")
    if not isinstance(kind, Name) or kind.module.partition(".")[0] != "torch":
        raise needs_code(kind if isinstance(kind, Name) else function)
    return call(function, arguments)


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8"):
        raise ValueError("no byte string")
    return text.encode(encoding)


def _bytearray(*arguments: Any) -> bytearray:
    if not arguments:
        return bytearray()
    first = arguments[0]
    if isinstance(first, str):
        return bytearray(_encode(*arguments))
    if not isinstance(first, (bytes, list)):  # a number would be a length
        raise ValueError("no bytes")
    return bytearray(first)


def _collection(kind: type[Any]) -> Callable[..., Any]:
    def make(*arguments: Any) -> Any:
        if len(arguments) > 1 or (arguments and not isinstance(arguments[0], (list, tuple, dict, set, frozenset))):
            raise TypeError(f"no {kind.__name__}")
        if kind is not tuple and arguments and isinstance(arguments[0], (list, tuple)):
            keys = (pair[0] for pair in arguments[0]) if kind is OrderedDict else arguments[0]
            check_keys(keys, KeyCheck())
        return kind(*arguments)

    return make


_FACTORIES: Final = {"list": list, "dict": dict, "int": int, "float": float, "set": set, "str": str, "tuple": tuple}


def _defaultdict(factory: Any = None, *arguments: Any) -> defaultdict[Any, Any]:
    if len(arguments) > 1 or (arguments and not isinstance(arguments[0], dict)):
        raise TypeError("no defaultdict")
    if factory is None:
        return defaultdict(None, *arguments)
    if not isinstance(factory, Name):
        raise TypeError("no factory")
    if factory.module not in _BUILT_INS or factory.name not in _FACTORIES:
        raise needs_code(factory)
    return defaultdict(_FACTORIES[factory.name], *arguments)


def _complex(real: Any, imaginary: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imaginary) not in (int, float):
        raise TypeError("no complex number")
    return complex(real, imaginary)


def _device(kind: Any, index: Any = None) -> Symbol:
    if not isinstance(kind, str) or not (index is None or type(index) is int):
        raise TypeError("no device")
    return Symbol(kind if index is None else f"{kind}:{index}")


def _layout(name: Any) -> Symbol:
    if not isinstance(name, str):
        raise TypeError("no layout")
    return Symbol(name)


@dataclass(frozen=True, slots=True)
class _NumPyType:
    text: str

    def with_state(self, state: Any) -> _NumPyType:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise TypeError("no element type of NumPy")
        return _NumPyType(f"{state[1].replace('=', '')}{self.text.lstrip('<>|=')}")

    def numpy(self) -> np.dtype[Any]:
        dtype = np.dtype(self.text)
        if dtype.kind not in "biufc":
            raise UnsupportedError("NumPy values of this type are not read from PyTorch files", found=dtype)
        return dtype


@dataclass(frozen=True, slots=True)
class _NumPyArray:
    """An array that has not got its state yet."""

    def with_state(self, state: Any) -> Any:
        _, shape, dtype, fortran, data = state
        if isinstance(dtype, _NumPyType) and isinstance(data, list):
            raise UnsupportedError(
                "arrays of Python objects are not read from PyTorch files",
                expected="arrays of numbers",
                found=f"shape {reprlib.repr(shape)}",
                remedy="load the file with torch.load where it was made, turn the array into a list or numbers, and save it again",
            )
        if not isinstance(dtype, _NumPyType) or not isinstance(data, bytes) or not _are_counts(shape):
            raise TypeError("no array of NumPy")
        array = np.frombuffer(data, dtype.numpy()).reshape(shape, order="F" if fortran else "C")
        return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")).reshape(shape))


def _numpy_type(text: Any, *rest: Any) -> _NumPyType:
    if not isinstance(text, str) or len(text) > 8:
        raise TypeError("no element type of NumPy")
    return _NumPyType(text)


def _numpy_scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, _NumPyType) or not isinstance(data, bytes):
        raise TypeError("no number of NumPy")
    found = dtype.numpy()
    return np.frombuffer(data, found, 1).astype(found.newbyteorder("="))[0]


_MAKERS: Final[dict[tuple[str, ...], Callable[..., Any]]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor_v2,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch.nn.parameter", "Parameter"): _parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("torch", "Size"): _collection(tuple),
    ("torch", "device"): _device,
    ("torch.serialization", "_get_layout"): _layout,
    ("collections", "OrderedDict"): _collection(OrderedDict),
    ("collections", "Counter"): _collection(Counter),
    ("collections", "defaultdict"): _defaultdict,
    ("_codecs", "encode"): _encode,
    **{(module, "set"): _collection(set) for module in _BUILT_INS},
    **{(module, "frozenset"): _collection(frozenset) for module in _BUILT_INS},
    **{(module, "complex"): _complex for module in _BUILT_INS},
    **{(module, "bytearray"): _bytearray for module in _BUILT_INS},
    ("numpy", "dtype"): _numpy_type,
    **{(f"numpy.{core}.multiarray", "scalar"): _numpy_scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "_reconstruct"): lambda *_: _NumPyArray() for core in ("core", "_core")},
}
_REFUSED: Final = {
    "_rebuild_sparse_tensor": "a sparse tensor",
    "_rebuild_sparse_csr_tensor": "a sparse tensor",
    "_rebuild_qtensor": "a quantised tensor",
    "_rebuild_nested_tensor": "a nested tensor",
    "_rebuild_meta_tensor_no_storage": "a tensor of the meta device, which has no values",
    "_rebuild_wrapper_subclass": "a tensor that is made of others, such as a DTensor",
    "_rebuild_device_tensor_from_numpy": "a tensor of a device that files as an array",
    "_rebuild_device_tensor_from_cpu_tensor": "a tensor of a device that files another one",
}
