"""Encodes nested plain state as named tensors: readable JSON, and one tensor for each array in the state.

`pack` returns a scalar string ``py_state``, and an entry for each array under its path in the state (``sampler/0/seed``). Text,
numbers, true, false, null, lists, and dicts whose keys are all text, are the same in JSON. Everything else is an object with the
member ``"!"``::

    tuple, set, frozenset    {"!": "tuple", "items": [...]}
    deque                    {"!": "deque", "items": [...], "maxlen": 3}
    dict with other keys     {"!": "dict", "items": [[key, value], ...]}
    OrderedDict, Counter     {"!": "OrderedDict", "items": [[key, value], ...]}
      with attributes        {"!": "OrderedDict", "items": [...], "attributes": {"_metadata": ...}}
    defaultdict              {"!": "defaultdict", "factory": "list", "items": [[key, value], ...]}
    text with surrogates     {"!": "str", "escaped": "\\ud800"}
    bytes, bytearray         {"!": "bytes", "text": "..."}, or "base64", or "entry" for long ones
    io.BytesIO               {"!": "BytesIO", "text": "...", "position": 0}, or "base64", or "entry"
    int that is very long    {"!": "int", "hex": "-ff..."}
    inf and nan              {"!": "float", "value": "-inf"}, or "bits" for nans other than the usual one
    complex                  {"!": "complex", "real": 1.0, "imag": 0.0}
    array                    {"!": "array", "entry": "name"}, and "as": "<U3" if the entry has another type (text, dates)
    array, within the text   {"!": "array", "dtype": "<u4", "shape": [2], "base64": "..."}
    array of objects         {"!": "objects", "shape": [2], "items": [...]}
    NumPy scalar             {"!": "scalar", "dtype": "float32", "value": 1.5}, or "base64"
    a registered kind        {"!": "torch", "value": ...}
    an object that is shared {"!": "shared", "id": 0, "value": ...}, and {"!": "shared", "id": 0} in its other places

`milepost.plain_state.decoding.unpack` is the exact inverse. Types and bits are kept, and a mutable object in several places is one
object again. NumPy arrays lose their memory order, and a view of another array becomes an array of its own. Instances of other classes
are refused, including subclasses such as named tuples: to make them again, a restore would have to run code that the file names.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from milepost.coding.depth import DEEPEST
from milepost.coding.utf8 import utf8
from milepost.errors import MilepostError, UnsupportedError
from milepost.graph.adapter import Array
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper
from milepost.graph.frameworks import import_adapters, refuse_type
from milepost.plain_state.arrays import Padding, dtype_name, to_stored
from milepost.plain_state.kinds import Kind, OfKind, kinds
from milepost.plain_state.kinds import register_kind as register_kind
from milepost.plain_state.sharing import Sharing
from milepost.tensor import DType

TEXT: Final = "py_state"
"""The name of the entry that holds the JSON text."""
_LONGEST_NAME: Final = 200
_LONGEST_PATH: Final = 1000
_LONG_INT: Final = 2048
"""An int with more bits is written as hexadecimal digits, because Python refuses to parse long decimal ones."""
_LONG_BYTES: Final = 1 << 10
_LONG_TEXT: Final = 1 << 16
_USUAL_NAN: Final = struct.pack(">d", math.nan)
FACTORIES: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (bool, bytes, dict, float, int, list, set, str, tuple)
}
"""The factories that a ``defaultdict`` may have, by name."""
_ALIKE: Final[dict[type, type]] = {ListWrapper: list, DictWrapper: dict, OrderedDictWrapper: OrderedDict}
"""milepost's own subclasses of lists and dicts, each with the class as which it is saved."""
Store = Callable[[Array, str], dict[str, Any]]
"""Stores an array of a type that files can hold. Returns the members that say where it is."""


def pack(state: Any, key: str = "") -> dict[str, Array]:
    """Encodes nested plain state as named arrays.

    Args:
        state: Dicts, lists, tuples, sets, deques, numbers, text, bytes, `io.BytesIO`, None, NumPy's arrays and scalars, and values of registered
            kinds, nested up to 100 levels.
        key: The key that errors name.

    Returns:
        ``py_state``, a scalar object array that holds JSON text as UTF-8, and each array of the state under its path. The arrays
        share the state's memory if files can hold their type.

    Raises:
        UnsupportedError: Something in it is not plain state, or it holds itself.

    Example:
        >>> import numpy as np
        >>> arrays = pack({"position": (3, 4), "seeds": np.arange(2)})
        >>> arrays["py_state"].item().decode()
        '{"position": {"!": "tuple", "items": [3, 4]}, "seeds": {"!": "array", "entry": "seeds"}}'
        >>> arrays["seeds"]
        array([0, 1])
    """
    entries: dict[str, Array] = {TEXT: np.empty((), object)}
    numbers: dict[str, int] = {}

    def store(array: Array, path: str) -> dict[str, Any]:
        name = _entry_name(path, entries, numbers)
        entries[name] = array
        return {"entry": name}

    entries[TEXT][()] = to_text(state, key, store).encode()
    return entries


def to_text(state: Any, key: str, store: Store) -> str:
    """Encodes plain state as JSON. Arrays are stored by ``store``. Errors are those of `pack`."""
    import_adapters()
    return json.dumps(_Encoder(key, store, Sharing(state)).encode(state, "", 0), ensure_ascii=False, allow_nan=False)


def store_inline(array: Array, path: str) -> dict[str, Any]:
    """A `Store` that writes arrays into the text itself."""
    if array.dtype.hasobject:
        items = [_bytes_members(each) for each in array.reshape(-1).tolist()]
        return {"shape": list(array.shape), "items": items}
    return {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "base64": _base64(array.tobytes())}


class _Encoder:
    def __init__(self, key: str, store: Store, sharing: Sharing) -> None:
        self._key = key
        self._store = store
        self._sharing = sharing
        self._open: set[int] = set()
        self._padding = Padding()

    def encode(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if value.bit_length() <= _LONG_INT else {"!": "int", "hex": format(value, "x")}
        if kind is float:
            return value if math.isfinite(value) else {"!": "float", **_float_members(value)}
        if kind is str:
            return (
                value if utf8(value) is not None else {"!": "str", "escaped": value.encode("unicode_escape").decode()}
            )
        if kind is complex:
            real, imag = (self.encode(part, path, depth) for part in (value.real, value.imag))
            return {"!": "complex", "real": real, "imag": imag}
        if kind is bytes:
            return {"!": "bytes", **self._bytes(value, path)}
        return (self._scalar if isinstance(value, np.generic) else self._nested)(value, path, depth)

    def _nested(self, value: Any, path: str, depth: int) -> Any:
        if type(value) is OfKind:
            return {"!": value.kind, "value": self.encode(value.plain, path, depth)}
        if id(value) in self._open:
            raise self._refusal(
                "state that holds itself cannot be saved", value, path, "return a copy without the cycle"
            )
        if depth >= DEEPEST:
            raise self._refusal(
                f"state of more than {DEEPEST} levels cannot be saved", value, path, "return less nested state"
            )
        value = self._sharing.instead_of(value)
        reference = self._sharing.reference(value)
        if reference is not None:
            return reference
        number = self._sharing.begin(value)
        self._open.add(id(value))
        try:
            form = self._by_kind(value, path, depth + 1)
        finally:
            self._open.discard(id(value))
        return form if number is None else self._sharing.end(number, value, form)

    def _by_kind(self, value: Any, path: str, depth: int) -> Any:
        kind = _ALIKE.get(type(value), type(value))
        if kind is dict:
            if "!" not in value and all(type(name) is str and utf8(name) is not None for name in value):
                return {name: self.encode(each, _join(path, name), depth) for name, each in value.items()}
            return {"!": "dict", "items": self._pairs(value, path, depth)}
        if kind is list:
            return self._items(value, path, depth)
        if kind is bytearray or kind is io.BytesIO:
            return self._buffer(value, path)
        if kind is tuple:
            return {"!": "tuple", "items": self._items(value, path, depth)}
        if kind is set or kind is frozenset:
            items = self._items(value, path, depth)
            if not self._sharing:  # the order of a set differs between processes
                items.sort(key=json.dumps)
            return {"!": kind.__name__, "items": items}
        if kind is deque:
            return {"!": "deque", "items": self._items(value, path, depth), "maxlen": value.maxlen}
        if kind is OrderedDict or kind is Counter:
            members = {"!": kind.__name__, "items": self._pairs(value, path, depth)}
            if type(value) is OrderedDict and vars(value):  # PyTorch keeps versions in attributes
                members["attributes"] = self.encode(vars(value), _join(path, "attributes"), depth)
            return members
        if kind is defaultdict:
            factory = value.default_factory
            if factory is not None and FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
                raise self._refusal("this state cannot be saved", factory, path, "use a factory such as int or list")
            name = None if factory is None else factory.__name__
            return {"!": "defaultdict", "factory": name, "items": self._pairs(value, path, depth)}
        if kind is np.ndarray or kind is np.memmap:
            return self._array(value, path, depth)
        for name, registered in reversed(kinds.items()):
            if registered.handles(value):
                return {"!": name, "value": self.encode(self._to_plain(registered, value, path), path, depth)}
        refuse_type(type(value))
        raise self._refusal(
            "this state cannot be saved", value, path, "return state of plain data, or make the object a PythonState"
        )

    def _to_plain(self, kind: Kind, value: Any, path: str) -> Any:
        try:
            return kind.to_plain(value)
        except MilepostError as error:
            raise error.with_context(key=_join(self._key, path)) from None
        except Exception as error:
            refusal = self._refusal("this state cannot be saved", value, path, "return it in another form")
            refusal.found = f"{refusal.found}, and {error}"
            raise refusal from error

    def _items(self, values: Iterable[Any], path: str, depth: int) -> list[Any]:
        return [self.encode(each, _join(path, str(number)), depth) for number, each in enumerate(values)]

    def _pairs(self, values: Mapping[Any, Any], path: str, depth: int) -> list[list[Any]]:
        pairs = []
        for number, (name, value) in enumerate(values.items()):
            readable = str(name) if isinstance(name, (str, int, float)) else str(number)
            inner = _join(path, readable)
            pairs.append([self.encode(name, inner, depth), self.encode(value, inner, depth)])
        return pairs

    def _buffer(self, value: bytearray | io.BytesIO, path: str) -> dict[str, Any]:
        if isinstance(value, bytearray):
            return {"!": "bytearray", **self._bytes(bytes(value), path)}
        return {"!": "BytesIO", **self._bytes(value.getvalue(), path), "position": value.tell()}

    def _bytes(self, data: bytes, path: str) -> dict[str, Any]:
        members = _bytes_members(data)
        if len(data) <= (_LONG_TEXT if "text" in members else _LONG_BYTES) or self._store is store_inline:
            return members
        array = np.empty((), object)
        array[()] = data
        return self._store(array, path)

    def _array(self, array: Array, path: str, depth: int) -> dict[str, Any]:
        dtype = array.dtype
        if dtype.kind == "O":
            return {
                "!": "objects",
                "shape": list(array.shape),
                "items": self._items(array.reshape(-1).tolist(), path, depth),
            }
        try:
            stored, declared = to_stored(array, self._padding)
        except UnsupportedError as error:
            raise error.with_context(key=_join(self._key, path)) from None
        return {"!": "array", **({"as": declared} if declared else {}), **self._store(stored, path)}

    def _scalar(self, value: np.generic, path: str, depth: int) -> dict[str, Any]:
        plain: Any
        dtype = value.dtype
        if isinstance(value, (np.str_, np.bytes_)):
            plain = str(value) if isinstance(value, np.str_) else bytes(value)
            return {"!": "scalar", "dtype": type(plain).__name__, "value": self.encode(plain, path, depth)}
        if dtype.kind in "mM":
            plain = int(np.asarray(value).astype(np.int64)[()])
            return {"!": "scalar", "dtype": dtype.str, "value": plain}
        try:
            known = DType.of(dtype)
        except UnsupportedError as error:
            raise error.with_context(key=_join(self._key, path)) from None
        if dtype.names:
            return {"!": "scalar", "dtype": known.name, "base64": _base64(value.tobytes())}
        plain = complex(value) if dtype.kind == "c" else value.item()
        if not isinstance(plain, (bool, int, float, complex)):  # element types of ml_dtypes
            plain = float(value)
            plain = int(plain) if "int" in known.name else plain
        if np.asarray(plain, dtype).tobytes() != value.tobytes():  # a nan other than the usual one
            return {"!": "scalar", "dtype": known.name, "base64": _base64(value.tobytes())}
        return {"!": "scalar", "dtype": known.name, "value": self.encode(plain, path, depth)}

    def _refusal(self, problem: str, value: Any, path: str, remedy: str) -> UnsupportedError:
        return UnsupportedError(
            problem,
            key=_join(self._key, path),
            expected="None, numbers, text, bytes, arrays, tensors, and lists, tuples, dicts, sets and deques of them",
            found=f"a {type(value).__module__}.{type(value).__qualname__}".replace(" builtins.", " "),
            remedy=remedy,
        )


def _float_members(value: float) -> dict[str, str]:
    if math.isnan(value) and struct.pack(">d", value) != _USUAL_NAN:
        return {"bits": struct.pack(">d", value).hex()}
    return {"value": repr(value)}


def _bytes_members(data: bytes) -> dict[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": _base64(data)}
    if all(each.isprintable() or each in "\n\r\t" for each in text):
        return {"text": text}
    return {"base64": _base64(data)}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _join(path: str, name: str) -> str:
    # Paths are cut. Otherwise the paths below long names could take more time and memory than the state.
    return f"{path[-_LONGEST_PATH:]}/{name}" if path else name


def _entry_name(path: str, taken: Mapping[str, Any], numbers: dict[str, int]) -> str:
    """A new name for an entry: its path, with a number if the name is taken.

    Args:
        path: The path of the array in the state.
        taken: The names that are taken.
        numbers: By path, the last number that was appended to it.
    """
    base = name = "".join(each if each.isprintable() else "_" for each in path[-_LONGEST_NAME:]) or "value"
    while name in taken:
        numbers[base] = number = numbers.get(base, 0) + 1
        name = f"{base}_{number}"
    return name
