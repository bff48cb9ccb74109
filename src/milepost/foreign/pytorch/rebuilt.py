"""The tensors and plain data that the names in a PyTorch file stand for. PyTorch itself is not needed.

The names are those that `torch.load` accepts with ``weights_only=True`` and that have a value, and those of NumPy's scalars and
arrays (`rebuilt_numpy`). Everything else becomes an `Opaque` object: sparse, quantised and nested tensors, tensors on the meta
device, classes of users. `refusal` returns the error that says why.
Source: PyTorch 2.13, ``torch/_weights_only_unpickler.py``, ``torch/_utils.py``.
"""

from __future__ import annotations

import io
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, Final

from milepost.errors import UnsupportedError
from milepost.foreign.opaque import Name, Opaque, needs_code
from milepost.foreign.pytorch import rebuilt_numpy
from milepost.foreign.pytorch.pickled import Unbuilt, as_keys
from milepost.foreign.pytorch.tensors import (
    DTYPES,
    TorchStorage,
    flagged,
    tensor,
    unknown_storage,
)
from milepost.foreign.stored import Stored
from milepost.plain_state.keys import KeyCheck
from milepost.plain_state.kinds import OfKind

METADATA: Final = "_metadata"
_NEW: Final = "__newobj__"
_LONGEST_NAME: Final = 1000
"""The most characters in the name of a function or class."""
"""The attribute of a state dict that holds the version of each module."""
_BUILT_INS: Final = ("builtins", "__builtin__")
_OF_TENSORS: Final = ("_rebuild_tensor", "_rebuild_parameter")
_STREAM: Final = Name("_io", "BytesIO")
_TENSORS: Final = ("torch._utils", "_rebuild_tensor_v2")
_WITHOUT_FLAGS: Final = 6
"""The arguments of a tensor that is stored as it is: its storage, offset, shape and strides, whether it needs a gradient, and its hooks."""
_EMPTY_DICTS: Final = ("collections", "OrderedDict")
_COMPOSED: Final = "_rebuild_wrapper_subclass"
_DATA: Final = "data"
"""The attribute of a tensor of another class that holds the tensor as one of PyTorch's own class."""


class Symbol(str):
    """A device, an element type or a layout, by its name.

    Attributes:
        kind: Its registered kind in plain state.
    """

    __slots__ = ()
    kind = ""

    @property
    def name(self) -> str:
        """Its name without the module."""
        return self.removeprefix("torch.")


class _ElementType(Symbol):
    """An element type."""

    __slots__ = ()
    kind = "torch.dtype"


class _RebuiltDevice(Symbol):
    """A device."""

    __slots__ = ()
    kind = "torch.device"


class _MemoryLayout(Symbol):
    """A layout."""

    __slots__ = ()
    kind = "torch.layout"


class Size(tuple[Any, ...]):
    """A `torch.Size`."""

    __slots__ = ()


def of_kind(value: Any) -> OfKind | None:
    """What stands for a value of PyTorch that is neither a tensor nor plain in plain state; None for all others."""
    if isinstance(value, Symbol):
        return OfKind(value.kind, value.name)
    return OfKind("torch.Size", list(value)) if isinstance(value, Size) else None


def unreadable(dtype: str) -> Opaque:
    """A placeholder for a tensor of an element type that milepost cannot read. `refusal` of it names the type."""
    arguments = (TorchStorage("", "uint8", 0), 0, (0,), (1,), None, None, _ElementType(f"torch.{dtype}"))
    return Opaque(Name("torch._utils", "_rebuild_tensor_v3"), arguments, sealed=True)


def meaning(name: Name) -> Any:
    """What represents a name in a file: a `Symbol` for an element type, and for all others the name itself."""
    if name.module == "torch" and name.name in DTYPES:
        return _ElementType(f"torch.{name.name}")
    return name


def call(name: Name, arguments: tuple[Any, ...]) -> Any:
    """The result of a call of a name; an `Opaque` object if only running code could give it.

    Raises:
        CorruptCheckpointError: A tensor reaches beyond its storage.
        TypeError, ValueError: The arguments are not those of such a call, so the file is damaged.
    """
    maker = _MAKERS.get((name.module, name.name))
    if maker is None:
        return Opaque(name, arguments, sealed=_refused(name) is not None)
    try:
        return maker(*arguments)
    except UnsupportedError:
        return Opaque(name, arguments, sealed=True)  # `refusal` says why
    except (TypeError, ValueError, AttributeError):
        if any(isinstance(each, (Opaque, Name)) and not isinstance(each, Unbuilt) for each in arguments):
            return Opaque(name, arguments)
        raise


def build(obj: Any, state: Any) -> Any:
    """An object after its state is set. Of the attributes of dicts, only the versions of PyTorch's modules are kept."""
    if isinstance(obj, rebuilt_numpy.UnbuiltArray):
        return rebuilt_numpy.built(obj, state)
    if isinstance(obj, Opaque):
        obj.state = state
        return obj
    if type(obj) is OrderedDict and isinstance(state, dict) and isinstance(state.get(METADATA), dict):
        vars(obj)[METADATA] = state[METADATA]
    if isinstance(obj, (OrderedDict, defaultdict, Counter, Stored)):
        return obj
    raise TypeError(f"no state can be set here: {type(obj).__name__}")


def refusal(value: Opaque | Name) -> UnsupportedError:
    """The error that says why an object is not read."""
    while isinstance(value, Opaque) and _refused(value.name) is None and value.name.name in _WRAPPING:
        inner = next((each for each in value.arguments if isinstance(each, Opaque)), None)
        if inner is None:
            break
        value = inner
    if isinstance(value, Opaque):
        reason = _refused(value.name)
        if reason is not None:
            return UnsupportedError(
                f"this is {reason}, which milepost does not read",
                found=kind_of(value),
                remedy="load the file with torch.load, make a plain tensor of it, and save that with milepost",
            )
        numpy = rebuilt_numpy.refusal(value)
        if numpy is not None:
            return numpy
        maker = _MAKERS.get((value.name.module, value.name.name))
        try:
            if maker is not None and value.sealed:
                maker(*value.arguments)
        except UnsupportedError as error:
            return error
        except (TypeError, ValueError, AttributeError):
            pass  # the arguments are not the reason
        if value.name.module.startswith("torch") and value.name.name.endswith("Storage"):
            return unknown_storage(value.name)
    return needs_code(value)


def kind_of(value: Opaque) -> str:
    """What an object is, as users know it: its class; for a tensor that is not read, which class it is of, or why it is not."""
    reason = _refused(value.name)
    if value.name.name == _COMPOSED and reason is not None and value.arguments and isinstance(value.arguments[0], Name):
        return str(value.arguments[0])
    if reason is not None:
        return f"torch.Tensor: {reason}"
    if value.sealed and value.name.name.startswith(_OF_TENSORS) and (value.name.module, value.name.name) in _MAKERS:
        return f"torch.Tensor: {refusal(value).problem}"
    return str(value)


def is_composed(value: Opaque) -> bool:
    """Whether this is a tensor of a class of a library that consists of other tensors, which are in its attributes."""
    data = value.state.get(_DATA) if isinstance(value.state, dict) else None
    return isinstance(data, Opaque) and data.name.name == _COMPOSED


def _refused(name: Name) -> str | None:
    return _REFUSED.get(name.name) if name.module in ("torch._utils", "torch._tensor") else None


def _tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Any:
    if not isinstance(storage, TorchStorage):
        raise TypeError("a tensor without a storage")
    return _flagged(tensor(storage, storage.dtype, offset, size, stride), rest[2] if len(rest) > 2 else None)


def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> Stored:
    if not isinstance(storage, TorchStorage) or not isinstance(dtype, Symbol):
        raise TypeError("a tensor without a storage, or without an element type")
    return _flagged(tensor(storage, dtype.name, offset, size, stride), rest[0] if rest else None)


def _flagged(stored: Stored, flags: Any) -> Stored:
    names = frozenset(f"{name!s:.40}" for name, value in flags.items() if value) if isinstance(flags, dict) else None
    return flagged(stored, names) if names else stored


def _parameter(data: Any, *rest: Any) -> Any:
    if isinstance(data, Opaque):
        return data
    if not isinstance(data, Stored):
        raise TypeError("a parameter that is not a tensor")
    return data


def _from_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """A tensor of a class with attributes. The attributes of PyTorch's own classes do not change the value."""
    if not isinstance(function, Name) or not isinstance(arguments, tuple):
        raise TypeError("not the arguments of a tensor with a class")
    data = call(function, arguments)
    if isinstance(kind, Name) and kind.module.partition(".")[0] != "torch":
        attributes = state if isinstance(state, dict) else {}
        return Opaque(kind, (), {_DATA: data, **attributes})
    return data


def _reconstructor(kind: Any, base: Any, content: Any) -> Opaque:
    """An object as the first two protocols write it: its class, and its contents as a list, a dict or a number."""
    if not isinstance(kind, Name):
        raise TypeError("an object without a class")
    made = Opaque(kind)
    if isinstance(content, dict):
        made.entries = list(content.items())
    elif isinstance(content, (list, set)):
        made.items = list(content)
    elif content is not None:
        made.arguments = (content,)
    return made


def _attribute(holder: Any, name: Any) -> Any:
    """A function or class that is defined inside another."""
    if isinstance(holder, Name) and isinstance(name, str):
        if len(holder.name) + len(name) > _LONGEST_NAME:
            raise ValueError("no class has a name so long")
        return Name(holder.module, f"{holder.name}.{name}")
    return Opaque(Name("builtins", "getattr"), (holder, name))


def _new(kind: Any, *arguments: Any) -> Any:
    """An object of a class, as the second protocol of pickle makes it."""
    if isinstance(kind, Name) and kind.name == _NEW:
        raise ValueError("a call of the call itself")
    return call(kind, arguments)


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8"):
        raise ValueError("not a byte string")
    return text.encode(encoding)


def _no_bytes() -> bytes:
    """The empty byte string, as the first protocols write it."""
    return b""


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
        if issubclass(kind, tuple) or not arguments or isinstance(arguments[0], (dict, set, frozenset)):
            return kind(*arguments)
        if kind is not OrderedDict:
            return kind(as_keys(arguments[0], KeyCheck()))
        keys = as_keys((pair[0] for pair in arguments[0]), KeyCheck())
        return OrderedDict(zip(keys, (value for _, value in arguments[0]), strict=True))

    return make


_FACTORIES: Final = {"list": list, "dict": dict, "int": int, "float": float, "set": set, "str": str, "tuple": tuple}


def _defaultdict(factory: Any = None, *arguments: Any) -> defaultdict[Any, Any] | Opaque:
    if len(arguments) > 1 or (arguments and not isinstance(arguments[0], dict)):
        raise TypeError("no defaultdict")
    if factory is None:
        return defaultdict(None, *arguments)
    if not isinstance(factory, Name):
        raise TypeError("no factory")
    if factory.module not in _BUILT_INS or factory.name not in _FACTORIES:
        return Opaque(Name("collections", "defaultdict"), (factory,))
    return defaultdict(_FACTORIES[factory.name], *arguments)


def _complex(real: Any, imaginary: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imaginary) not in (int, float):
        raise TypeError("not a complex number")
    return complex(real, imaginary)


def _device(kind: Any, index: Any = None) -> _RebuiltDevice:
    if not isinstance(kind, str) or not (index is None or type(index) is int):
        raise TypeError("no device")
    return _RebuiltDevice(kind if index is None else f"{kind}:{index}")


def _layout(name: Any) -> Symbol:
    if not isinstance(name, str):
        raise TypeError("no layout")
    return _MemoryLayout(name)


_MAKERS: Final[dict[tuple[str, ...], Callable[..., Any]]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor_v2,
    _TENSORS: _tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch.nn.parameter", "Parameter"): _parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("torch", "Size"): _collection(Size),
    ("torch", "device"): _device,
    ("torch.serialization", "_get_layout"): _layout,
    _EMPTY_DICTS: _collection(OrderedDict),
    ("collections", "Counter"): _collection(Counter),
    ("collections", "defaultdict"): _defaultdict,
    ("_codecs", "encode"): _encode,
    **{(module, "set"): _collection(set) for module in _BUILT_INS},
    **{(module, "frozenset"): _collection(frozenset) for module in _BUILT_INS},
    **{(module, "complex"): _complex for module in _BUILT_INS},
    **{(module, "bytearray"): _bytearray for module in _BUILT_INS},
    **{(module, "bytes"): _no_bytes for module in _BUILT_INS},
    **{(module, "_reconstructor"): _reconstructor for module in ("copyreg", "copy_reg")},
    **{(module, _NEW): _new for module in ("copyreg", "copy_reg")},
    **{(module, "getattr"): _attribute for module in _BUILT_INS},
    **rebuilt_numpy.MAKERS,
}
_WRAPPING: Final = frozenset({"_rebuild_parameter", "_rebuild_parameter_with_state", "_rebuild_tensor_v2"})
_REFUSED: Final = {
    "_rebuild_sparse_tensor": "a sparse tensor",
    "_rebuild_sparse_csr_tensor": "a sparse tensor",
    "_rebuild_qtensor": "a quantised tensor",
    "_rebuild_nested_tensor": "a nested tensor",
    "_rebuild_meta_tensor_no_storage": "a tensor of the meta device, which has no values",
    _COMPOSED: "a tensor that consists of others, such as a DTensor",
    "_rebuild_device_tensor_from_numpy": "a tensor of a device that is stored as an array",
    "_rebuild_device_tensor_from_cpu_tensor": "a tensor of a device that is stored as a tensor of the CPU",
}


def stream_of(value: Opaque) -> io.BytesIO | None:
    """The bytes in memory that an object is, at their position; None if it is something else."""
    if value.name != _STREAM or value.arguments or value.items is not None or value.entries is not None:
        return None
    match value.state:
        case (bytes(content), int(position), None) if 0 <= position < 1 << 63:
            stream = io.BytesIO(content)
            stream.seek(position)
            return stream
    return None
