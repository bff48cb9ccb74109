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
    int that is very long    {"!": "int", "hex": "-ff..."}
    inf and nan              {"!": "float", "value": "-inf"}, or "bits" for nans other than the usual one
    complex                  {"!": "complex", "real": 1.0, "imag": 0.0}
    array                    {"!": "array", "entry": "name"}; "as": "<U3" if the entry has another type (text, dates)
    array, within the text   {"!": "array", "dtype": "<u4", "shape": [2], "base64": "..."}
    array of objects         {"!": "objects", "shape": [2], "items": [...]}
    NumPy scalar             {"!": "scalar", "dtype": "float32", "value": 1.5}, or "base64"
    a registered kind        {"!": "torch", "value": ...}
    an object that is shared {"!": "shared", "id": 0, "value": ...}, and {"!": "shared", "id": 0} in its other places

`unpack` is the exact inverse. Types and bits are kept, and a mutable object in several places is one object again. The memory order
of NumPy arrays is not kept, nor that one is a view of another. Instances of other classes are refused, including subclasses such as
named tuples: to make them again, a restore would have to run code that the file names.
"""

from __future__ import annotations

import base64
import json
import math
import reprlib
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.graph.adapter import Array
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper
from milepost.graph.frameworks import import_adapters
from milepost.plain_state.arrays import dtype_name, dtype_of, from_stored, shaped, to_stored
from milepost.plain_state.keys import KeyCheck
from milepost.plain_state.kinds import Kind, kinds
from milepost.plain_state.kinds import register_kind as register_kind
from milepost.plain_state.sharing import FORM, Shared, Sharing
from milepost.tensor import DType

TEXT: Final = "py_state"
"""The name of the entry that holds the JSON text."""

_DEEPEST: Final = 64
_LONGEST_NAME: Final = 200
_LONGEST_PATH: Final = 1000
_LONG_INT: Final = 2048
"""An int with more bits is written as hexadecimal digits, because Python refuses to parse long decimal ones."""
_LONG_BYTES: Final = 1 << 10
_LONG_TEXT: Final = 1 << 16
_USUAL_NAN: Final = struct.pack(">d", math.nan)
_FACTORIES: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (bool, bytes, dict, float, int, list, set, str, tuple)
}
_ALIKE: Final[dict[type, type]] = {ListWrapper: list, DictWrapper: dict, OrderedDictWrapper: OrderedDict}
"""milepost's own subclasses of lists and dicts, each with the class as which it is saved."""
_COLLECTIONS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda items: Counter(dict(items)),
}
_MALFORMED: Final = (
    *(ValueError, TypeError, LookupError, ArithmeticError),
    *(AttributeError, RecursionError, MemoryError, struct.error),
)
"""The exceptions that decoding raises for a text that `to_text` has not written."""

Store = Callable[[Array, str], dict[str, Any]]
"""Stores an array of a type that files can hold. Returns the members that say where it is."""


def pack(state: Any, key: str = "") -> dict[str, Array]:
    """Encodes nested plain state as named arrays.

    Args:
        state: Dicts, lists, tuples, sets, deques, numbers, text, bytes, None, NumPy's arrays and scalars, and values of registered
            kinds, nested up to 64 levels.
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


def unpack(arrays: Mapping[str, Array]) -> Any:
    """Decodes what `pack` returned. Arrays in the state are the given ones if they need no conversion.

    Args:
        arrays: What `pack` returned.

    Raises:
        CorruptCheckpointError: The arrays are not those of a state.
        UnsupportedError: A newer version of milepost has written them.

    Example:
        >>> unpack(pack([1.5, (b"ab", None)]))
        [1.5, (b'ab', None)]
    """
    text = arrays.get(TEXT)
    content = text.item() if isinstance(text, np.ndarray) and text.shape == () else None
    if isinstance(content, (bytes, str)):
        return from_text(content, arrays)
    found = "no such entry" if text is None else f"{text.dtype}, shape {text.shape}"
    raise CorruptCheckpointError("this is not plain state", expected=f"a scalar string {TEXT!r}", found=found)


def to_text(state: Any, key: str, store: Store) -> str:
    """Encodes plain state as JSON. Arrays are stored by ``store``. Errors are those of `pack`."""
    import_adapters()
    return json.dumps(_Encoder(key, store, Sharing(state)).encode(state, "", 0), ensure_ascii=False, allow_nan=False)


def from_text(text: str | bytes, arrays: Mapping[str, Array]) -> Any:
    """Decodes what `to_text` returned; ``arrays`` are the entries. Errors are those of `unpack`."""
    import_adapters()
    try:
        return _Decoder(arrays).decode(json.loads(text), 0)
    except MilepostError:
        raise
    except _MALFORMED as error:
        raise CorruptCheckpointError(
            "this is not the text of plain state", found=f"{type(error).__name__}: {error}"
        ) from error


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

    def encode(self, value: Any, path: str, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if value.bit_length() <= _LONG_INT else {"!": "int", "hex": format(value, "x")}
        if kind is float:
            return value if math.isfinite(value) else {"!": "float", **_float_members(value)}
        if kind is str:
            return value if _is_text(value) else {"!": "str", "escaped": value.encode("unicode_escape").decode()}
        if kind is complex:
            real, imag = (self.encode(part, path, depth) for part in (value.real, value.imag))
            return {"!": "complex", "real": real, "imag": imag}
        if kind is bytes:
            return {"!": "bytes", **self._bytes(value, path)}
        return (self._scalar if isinstance(value, np.generic) else self._nested)(value, path, depth)

    def _nested(self, value: Any, path: str, depth: int) -> Any:
        if id(value) in self._open:
            raise self._refusal(
                "state that holds itself cannot be saved", value, path, "return a copy without the cycle"
            )
        if depth >= _DEEPEST:
            raise self._refusal(
                f"state of more than {_DEEPEST} levels cannot be saved", value, path, "return less nested state"
            )
        value = self._sharing.instead_of(value)
        reference = self._sharing.reference(value)
        if reference is not None:
            return reference
        self._open.add(id(value))
        try:
            return self._sharing.written(value, lambda: self._by_kind(value, path, depth + 1))
        finally:
            self._open.discard(id(value))

    def _by_kind(self, value: Any, path: str, depth: int) -> Any:
        kind = _ALIKE.get(type(value), type(value))
        if kind is dict:
            if "!" not in value and all(type(name) is str and _is_text(name) for name in value):
                return {name: self.encode(each, _join(path, name), depth) for name, each in value.items()}
            return {"!": "dict", "items": self._pairs(value, path, depth)}
        if kind is list:
            return self._items(value, path, depth)
        if kind is bytearray:
            return {"!": "bytearray", **self._bytes(bytes(value), path)}
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
            if factory is not None and _FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
                raise self._refusal("this state cannot be saved", factory, path, "use a factory such as int or list")
            name = None if factory is None else factory.__name__
            return {"!": "defaultdict", "factory": name, "items": self._pairs(value, path, depth)}
        if kind is np.ndarray or kind is np.memmap:
            return self._array(value, path, depth)
        for name, registered in reversed(kinds.items()):
            if registered.handles(value):
                return {"!": name, "value": self.encode(self._to_plain(registered, value, path), path, depth)}
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
            stored, declared = to_stored(array)
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


class _Decoder:
    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._shared = Shared()

    def decode(self, value: Any, depth: int) -> Any:
        if isinstance(value, (list, dict)) and depth > 3 * _DEEPEST:
            raise CorruptCheckpointError(f"this plain state has more than {_DEEPEST} levels")
        if isinstance(value, list):
            return [self.decode(each, depth + 1) for each in value]
        if not isinstance(value, dict):
            return value
        form = value.get("!")
        if form is None:
            return {name: self.decode(each, depth + 1) for name, each in value.items()}
        decode = _FORMS.get(form) if isinstance(form, str) else None
        return self._registered(form, value, depth) if decode is None else decode(self, value, depth)

    def _reference(self, value: dict[str, Any], depth: int) -> Any:
        return self._shared.read(value, lambda inner: self.decode(inner, depth + 1))

    def _collection(self, value: dict[str, Any], depth: int) -> Any:
        items = self.decode(value["items"], depth + 1)
        if value["!"] != "tuple":
            KeyCheck().add(items)
        return _COLLECTIONS[value["!"]](items)

    def _mapping(self, value: dict[str, Any], depth: int) -> Any:
        mapping = _COLLECTIONS[value["!"]](self._pairs(value["items"], depth + 1))
        if value["!"] == "OrderedDict" and "attributes" in value:
            vars(mapping).update(self.decode(value["attributes"], depth + 1))
        return mapping

    def _deque(self, value: dict[str, Any], depth: int) -> Any:
        return deque(self.decode(value["items"], depth + 1), value["maxlen"])

    def _defaultdict(self, value: dict[str, Any], depth: int) -> Any:
        factory = None if value["factory"] is None else _FACTORIES[value["factory"]]
        return defaultdict(factory, self._pairs(value["items"], depth + 1))

    def _complex(self, value: dict[str, Any], depth: int) -> Any:
        return complex(self.decode(value["real"], depth + 1), self.decode(value["imag"], depth + 1))

    def _objects(self, value: dict[str, Any], depth: int) -> Any:
        return shaped(self.decode(value["items"], depth + 1), value["shape"])

    def _pairs(self, items: Any, depth: int) -> list[Any]:
        pairs: list[Any] = self.decode(items, depth)
        KeyCheck().add(pair[0] for pair in pairs)
        return pairs

    def _registered(self, form: Any, value: dict[str, Any], depth: int) -> Any:
        if form == "tensor":  # the first form of tensors, which only PyTorch had
            form, value = "torch", {"value": {**value, "!": "array"}}
        if not isinstance(form, str):
            raise CorruptCheckpointError("this is not a kind of plain state", found=f"{form!r:.80}")
        if "value" not in value:
            raise UnsupportedError(
                "this kind of plain state is unknown; a newer milepost may have written it",
                found=f"{form!r:.80}",
                remedy="install the version of milepost that saved it, or a newer one",
            )
        plain = self.decode(value["value"], depth + 1)
        kind = kinds.get(form)
        if kind is None:  # its library has not been imported
            return plain
        try:
            return kind.from_plain(plain)
        except MilepostError:
            raise
        except Exception as error:
            raise CorruptCheckpointError(
                f"this is not a value of kind {form!r}",
                found=f"{reprlib.repr(plain):.80}: {type(error).__name__}: {error}",
            ) from error

    def _entry(self, name: Any) -> Array:
        array = self._arrays.get(name) if isinstance(name, str) and name != TEXT else None
        if not isinstance(array, np.ndarray):
            raise CorruptCheckpointError("plain state refers to an entry that does not exist", key=name)
        return array

    def _bytes(self, value: dict[str, Any]) -> bytes:
        if "text" in value:
            return value["text"].encode()  # type: ignore[no-any-return]  # JSON has no types
        if "base64" in value:
            return base64.b64decode(value["base64"], validate=True)
        data = self._entry(value["entry"]).item()
        if not isinstance(data, bytes):
            raise CorruptCheckpointError("this entry of plain state is not a byte string", key=value["entry"])
        return data

    def _array(self, value: dict[str, Any]) -> Array:
        if "base64" in value:
            raw = base64.b64decode(value["base64"], validate=True)
            array = np.frombuffer(raw, dtype_of(value["dtype"])).reshape(value["shape"]).copy()
        elif "items" in value:
            array = shaped([self._bytes(each) for each in value["items"]], value["shape"])
        else:
            array = self._entry(value["entry"])
        return from_stored(array, value["as"]) if "as" in value else array

    def _scalar(self, value: dict[str, Any], depth: int) -> Any:
        if value["dtype"] in ("str", "bytes"):
            plain = self.decode(value["value"], depth + 1)
            return np.str_(plain) if isinstance(plain, str) else np.bytes_(plain)
        dtype = dtype_of(value["dtype"])
        if "base64" in value:
            return np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype, 1)[0]
        if dtype.kind in "US":
            raise CorruptCheckpointError("plain state has no scalars of this type", found=value["dtype"])
        if dtype.kind in "mM":
            return np.array(value["value"], np.int64).view(dtype)[()]
        return np.array(self.decode(value["value"], depth + 1), dtype)[()]


_FORMS: Final[dict[str, Callable[[_Decoder, dict[str, Any], int], Any]]] = {
    FORM: _Decoder._reference,
    **dict.fromkeys(("tuple", "set", "frozenset"), _Decoder._collection),
    **dict.fromkeys(("dict", "OrderedDict", "Counter"), _Decoder._mapping),
    "deque": _Decoder._deque,
    "defaultdict": _Decoder._defaultdict,
    "int": lambda decoder, value, depth: int(value["hex"], 16),
    "float": lambda decoder, value, depth: _float(value),
    "complex": _Decoder._complex,
    "str": lambda decoder, value, depth: value["escaped"].encode("ascii").decode("unicode_escape"),
    "bytes": lambda decoder, value, depth: decoder._bytes(value),
    "bytearray": lambda decoder, value, depth: bytearray(decoder._bytes(value)),
    "array": lambda decoder, value, depth: decoder._array(value),
    "objects": _Decoder._objects,
    "scalar": _Decoder._scalar,
}
"""By the form of an object in the text, the function that decodes it."""


def _float(value: dict[str, Any]) -> float:
    if "bits" in value:
        number: float = struct.unpack(">d", bytes.fromhex(value["bits"]))[0]
        return number
    return float(value["value"])


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


def _is_text(value: str) -> bool:
    """Whether text has no lone surrogates, which UTF-8 cannot encode."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


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
