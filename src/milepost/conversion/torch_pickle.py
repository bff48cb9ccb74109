"""Pickled data of PyTorch: a dict of tensors and plain state, as ``torch.save`` writes it.

::

    data.pkl            := PROTO 2  EMPTY_DICT  MARK {name  value} SETITEMS  STOP
                         | PROTO 2  hooks  MARK {name  value} SETITEMS  EMPTY_DICT "_metadata" versions SETITEM  BUILD  STOP
    versions            := hooks  MARK {name of a module  EMPTY_DICT "version" number SETITEM} SETITEMS
    value               := tensor | plain state
    tensor              := GLOBAL "torch._utils _rebuild_tensor_v2" (or _v3)  MARK storage 0 shape strides False hooks TUPLE REDUCE
    hooks               := GLOBAL "collections OrderedDict" EMPTY_TUPLE REDUCE
    storage             := MARK "storage" GLOBAL "torch FloatStorage" key "cpu" elements TUPLE BINPERSID

The second form is that of a ``state_dict()``, whose versions tell modules how old their state is. Types that have no class of storages in PyTorch
take ``UntypedStorage``, counted in bytes, and name their type in the call of ``_rebuild_tensor_v3``.

``torch.load(weights_only=True)`` accepts everything that is written here but `io.BytesIO`, for which a program has to call
``torch.serialization.add_safe_globals``, also for files of ``torch.save``.
Source: PyTorch 2.13, ``torch/_utils.py``, ``torch/_weights_only_unpickler.py``.
"""

from __future__ import annotations

import io
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from milepost.bundle.memory import Array
from milepost.conversion.plan import Exported
from milepost.conversion.states import gradient_of, tensor_of
from milepost.errors import UnsupportedError
from milepost.foreign.pytorch.rebuilt import METADATA
from milepost.foreign.pytorch.tensors import DTYPES, STORAGES, UNTYPED
from milepost.plain_state.kinds import OfKind
from milepost.tensor import DType, TensorSpec

_BATCH: Final = 1000
"""How many items `pickle` adds to a dict at once."""
_MOST_BYTES: Final = 255
"""The longest number that ``weights_only=True`` reads."""
_CLASSES: Final = {dtype: f"{name}" for name, dtype in STORAGES.items() if name != UNTYPED and not name.startswith("Q")}
"""By element type, the class of storages."""


class Pickled:
    """Pickled data in the making. Names of classes and functions, and objects that can change, are written once, and taken from the memo after that.

    Args:
        storages: The numbers of the storages of tensors, by their keys.

    Attributes:
        arrays: The elements of the tensors in plain state, whose storages have the numbers after these.
        kept: What was written and may be written again, so that no identity is used for something else.
    """

    def __init__(self, storages: Mapping[str, int] | None = None) -> None:
        self.arrays: list[Array] = []
        self._storages = storages or {}
        self._parts = [b"\x80\x02"]
        self._memo: dict[str | int, int] = {}
        self.kept: list[Any] = []

    def state_dict(self, values: Sequence[Exported], versions: Mapping[str, int]) -> bytes:
        """A whole ``state_dict``.

        Args:
            values: Its tensors and plain state.
            versions: The versions of modules, by their names.
        """
        if versions:
            self._ordered_dict()
        else:
            self._put(b"}")
        self._items((each.name, partial(self._add_exported, each)) for each in values)
        if versions:
            self._put(b"}")
            self._text(METADATA)
            self._ordered_dict()
            self._pairs({name: {"version": version} for name, version in versions.items()})
            self._put(b"sb")
        return b"".join([*self._parts, b"."])

    def add(self, value: Any) -> None:
        """Adds plain state.

        Raises:
            UnsupportedError: ``weights_only=True`` does not accept it.
        """
        kind = type(value)
        known = self._memo.get(id(value)) if kind in _CHANGING else None
        if known is not None:
            self._get(known)
        elif value is None or kind is bool:
            self._put({None: b"N", True: b"\x88", False: b"\x89"}[value])
        elif kind in _FORMS:
            _FORMS[kind](self, value)
        else:
            raise _refused(f"a {kind.__module__}.{kind.__qualname__}".replace(" builtins.", " "))

    def _add_exported(self, value: Exported) -> None:
        if value.is_state:
            self.add(value.state)
        else:
            self._tensor(value.spec, self._storages[value.key])

    def _put(self, data: bytes) -> None:
        self._parts.append(data)

    def _items(self, items: Iterable[tuple[Any, Callable[[], None]]]) -> None:
        """Adds items to the dict before, whose values add themselves."""
        pending = list(items)
        for start in range(0, len(pending), _BATCH):
            self._put(b"(")
            for name, add in pending[start : start + _BATCH]:
                self.add(name)
                add()
            self._put(b"u")

    def _pairs(self, value: Mapping[Any, Any]) -> None:
        self._items((name, partial(self.add, each)) for name, each in value.items())

    def _remember(self, value: Any) -> None:
        """Notes that a name, or an object by its identity, was written."""
        self.kept.append(value)
        number = self._memo[value if isinstance(value, str) else id(value)] = len(self._memo)
        self._put(b"r" + struct.pack("<I", number))

    def _get(self, number: int) -> None:
        self._put(b"j" + struct.pack("<I", number))

    def _name(self, module: str, name: str) -> None:
        full = f"{module}\n{name}\n"
        known = self._memo.get(full)
        if known is not None:
            self._get(known)
            return
        self._put(b"c" + full.encode())
        self._remember(full)

    def _text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._put(b"X" + struct.pack("<I", len(data)) + data)

    def _number(self, number: int) -> None:
        if -(1 << 31) <= number < 1 << 31:
            self._put(b"J" + struct.pack("<i", number))
            return
        size = number.bit_length() // 8 + 1
        if size > _MOST_BYTES:
            raise _refused(f"a number of {number.bit_length()} bits")
        self._put(b"\x8a" + bytes([size]) + number.to_bytes(size, "little", signed=True))

    def _float(self, number: float) -> None:
        self._put(b"G" + struct.pack(">d", number))

    def _call(self, module: str, name: str, *arguments: Any) -> None:
        """Adds the result of a function."""
        self._name(module, name)
        self._tuple(arguments)
        self._put(b"R")

    def _tuple(self, members: Iterable[Any]) -> None:
        self._put(b"(")
        for each in members:
            self.add(each)
        self._put(b"t")

    def _list(self, members: list[Any]) -> None:
        self._put(b"]")
        self._remember(members)
        self._put(b"(")
        for each in members:
            self.add(each)
        self._put(b"e")

    def _dict(self, value: dict[Any, Any]) -> None:
        self._put(b"}")
        self._remember(value)
        self._pairs(value)

    def _ordered_dict(self) -> None:
        """Adds an empty `OrderedDict`."""
        self._call("collections", "OrderedDict")

    def _ordered(self, value: OrderedDict[Any, Any]) -> None:
        self._ordered_dict()
        self._remember(value)
        self._pairs(value)
        if vars(value):
            self.add(vars(value))
            self._put(b"b")

    def _counter(self, value: Counter[Any]) -> None:
        self._call("collections", "Counter", dict(value))
        self._remember(value)

    def _set(self, value: set[Any]) -> None:
        self._call("builtins", "set", list(value))
        self._remember(value)

    def _bytes(self, value: bytes) -> None:
        self._call("_codecs", "encode", value.decode("latin-1"), "latin1")

    def _bytearray(self, value: bytearray) -> None:
        self._call("builtins", "bytearray", bytes(value).decode("latin-1"), "latin-1")
        self._remember(value)

    def _stream(self, value: io.BytesIO) -> None:
        self._name("_io", "BytesIO")
        self._put(b")\x81")
        self._remember(value)
        self._tuple((value.getvalue(), value.tell(), None))
        self._put(b"b")

    def _of_kind(self, value: OfKind) -> None:
        """Adds a value of PyTorch."""
        array = tensor_of(value)
        plain = value.plain
        if array is not None:
            self._state_tensor(value, array)
        elif value.kind == "torch.Size" and isinstance(plain, list):
            self._call("torch", "Size", tuple(plain))
        elif value.kind == "torch.device" and isinstance(plain, str):
            self._call("torch", "device", plain)
        elif value.kind == "torch.layout" and isinstance(plain, str):
            self._call("torch.serialization", "_get_layout", f"torch.{plain}")
        elif value.kind == "torch.dtype" and plain in DTYPES:
            self._name("torch", plain)
        else:
            raise _refused(f"a value of the kind {value.kind!r}")

    def _state_tensor(self, value: OfKind, array: Array) -> None:
        spec = TensorSpec(DType.of(array), array.shape)
        if spec.dtype.name not in DTYPES:
            raise _refused(f"a tensor of {spec.dtype}")
        number = len(self._storages) + len(self.arrays)
        self.arrays.append(array)
        is_parameter, required = gradient_of(value)
        if is_parameter:
            self._name("torch._utils", "_rebuild_parameter")
            self._put(b"(")
            self._tensor(spec, number)
            self.add(required)
            self._ordered_dict()
            self._put(b"tR")
        else:
            self._tensor(spec, number, required=required)
        self._remember(value)

    def _tensor(self, spec: TensorSpec, storage: int, *, required: bool = False) -> None:
        """Adds the call that makes a tensor.

        Args:
            spec: Its element type and shape.
            storage: The number of its storage.
            required: Whether it requires a gradient.
        """
        typed = _CLASSES.get(spec.dtype.name)
        self._name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self._put(b"((")
        self._text("storage")
        self._name("torch" if typed else "torch.storage", typed or UNTYPED)
        self._text(str(storage))
        self._text("cpu")
        self._number(spec.nbytes // (spec.dtype.itemsize if typed else 1))
        self._put(b"tQ")
        self._number(0)
        self._tuple(spec.shape)
        self._tuple(_strides(spec.shape))
        self.add(required)
        self._ordered_dict()
        if not typed:
            self._name("torch", spec.dtype.name)
        self._put(b"tR")


def holds_stream(value: Any) -> bool:
    """Whether plain state holds an `io.BytesIO`."""
    pickled = Pickled()
    pickled.add(value)
    return any(isinstance(each, io.BytesIO) for each in pickled.kept)


_FORMS: Final[dict[type, Callable[[Pickled, Any], None]]] = {
    int: Pickled._number,
    float: Pickled._float,
    complex: lambda pickled, value: pickled._call("builtins", "complex", value.real, value.imag),
    str: Pickled._text,
    bytes: Pickled._bytes,
    bytearray: Pickled._bytearray,
    tuple: Pickled._tuple,
    list: Pickled._list,
    dict: Pickled._dict,
    set: Pickled._set,
    OrderedDict: Pickled._ordered,
    Counter: Pickled._counter,
    io.BytesIO: Pickled._stream,
    OfKind: Pickled._of_kind,
}
"""By type, what adds a value."""
_CHANGING: Final = frozenset({bytearray, list, dict, set, OrderedDict, Counter, io.BytesIO, OfKind})
"""The types of objects that can change, so that an object in several places is one object again."""


def _strides(shape: Sequence[int]) -> list[int]:
    """How many elements lie between two neighbours in each dimension, as PyTorch counts them where a dimension is empty, too."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return strides[::-1]


def _refused(what: str) -> UnsupportedError:
    return UnsupportedError(
        "a file of PyTorch cannot hold this plain state",
        found=f"{what}, which torch.load(weights_only=True) does not accept",
    )
