"""Decodes plain state. The format is described in `milepost.plain_state.encoding`."""

from __future__ import annotations

import base64
import io
import json
import reprlib
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from milepost.coding.depth import DEEPEST
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.graph.adapter import Array
from milepost.graph.frameworks import import_adapters
from milepost.plain_state.arrays import Padding, dtype_of, from_stored, shaped
from milepost.plain_state.encoding import FACTORIES, TEXT
from milepost.plain_state.keys import KeyCheck
from milepost.plain_state.kinds import OfKind, kinds
from milepost.plain_state.sharing import FORM, Shared
from milepost.tensor.bounds import check_bounds

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


def unpack(arrays: Mapping[str, Array], padding: Padding | None = None, *, made: bool = True) -> Any:
    """Decodes what `milepost.plain_state.encoding.pack` returned. Arrays in the state are the given ones if they need no conversion.

    Args:
        arrays: What `pack` returned.
        padding: That of other states of the same file, which count together.
        made: Whether values of registered kinds are made. Otherwise `OfKind` stands for them.

    Raises:
        CorruptCheckpointError: The arrays are not those of a state.
        UnsupportedError: A newer version of milepost has written them.

    Example:
        >>> from milepost.plain_state.encoding import pack
        >>> unpack(pack([1.5, (b"ab", None)]))
        [1.5, (b'ab', None)]
    """
    text = arrays.get(TEXT)
    content = text.item() if isinstance(text, np.ndarray) and text.shape == () else None
    if isinstance(content, (bytes, str)):
        return from_text(content, arrays, padding, made=made)
    found = "no such entry" if text is None else f"{text.dtype}, shape {text.shape}"
    raise CorruptCheckpointError("this is not plain state", expected=f"a scalar string {TEXT!r}", found=found)


def from_text(
    text: str | bytes, arrays: Mapping[str, Array], padding: Padding | None = None, *, made: bool = True
) -> Any:
    """Decodes what `milepost.plain_state.encoding.to_text` returned; ``arrays`` are the entries. The rest is as for `unpack`."""
    import_adapters()
    try:
        return _StateDecoder(arrays, padding or Padding(), made=made).decode(json.loads(text), 0)
    except MilepostError:
        raise
    except _MALFORMED as error:
        raise CorruptCheckpointError(
            "this is not the text of plain state", found=f"{type(error).__name__}: {error}"
        ) from error


class _StateDecoder:
    def __init__(self, arrays: Mapping[str, Array], padding: Padding, *, made: bool) -> None:
        self._arrays = arrays
        self._shared = Shared()
        self._padding = padding
        self._made = made

    def decode(self, value: Any, depth: int) -> Any:
        if isinstance(value, (list, dict)) and depth > 3 * DEEPEST:
            raise CorruptCheckpointError(f"this plain state has more than {DEEPEST} levels")
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
        number = self._shared.begin(value)
        if number is not None:
            self._shared.end(number, self.decode(value["value"], depth + 1))
        return self._shared[value["id"]]

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

    def _stream(self, value: dict[str, Any]) -> Any:
        stream = io.BytesIO(self._bytes(value))
        stream.seek(value["position"])
        return stream

    def _defaultdict(self, value: dict[str, Any], depth: int) -> Any:
        factory = None if value["factory"] is None else FACTORIES[value["factory"]]
        return defaultdict(factory, self._pairs(value["items"], depth + 1))

    def _complex(self, value: dict[str, Any], depth: int) -> Any:
        return complex(self.decode(value["real"], depth + 1), self.decode(value["imag"], depth + 1))

    def _objects(self, value: dict[str, Any], depth: int) -> Any:
        return shaped(self.decode(value["items"], depth + 1), value["shape"])

    def _pairs(self, items: Any, depth: int) -> list[Any]:
        pairs: list[Any] = [(self.decode(name, depth), self.decode(each, depth)) for name, each in items]
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
        if not self._made:
            return OfKind(form, plain)
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
            array = np.frombuffer(raw, _of_numbers(value["dtype"])).reshape(value["shape"]).copy()
        elif "items" in value:
            array = shaped([self._bytes(each) for each in value["items"]], value["shape"])
        else:
            array = self._entry(value["entry"])
        return from_stored(array, value["as"], self._padding) if "as" in value else array

    def _scalar(self, value: dict[str, Any], depth: int) -> Any:
        if value["dtype"] in ("str", "bytes"):
            plain = self.decode(value["value"], depth + 1)
            return np.str_(plain) if isinstance(plain, str) else np.bytes_(plain)
        dtype = _of_numbers(value["dtype"])
        if "base64" in value:
            return np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype, 1)[0]
        if dtype.kind in "mM":
            return np.array(value["value"], np.int64).view(dtype)[()]
        number = self.decode(value["value"], depth + 1)
        check_bounds(number, dtype)
        return np.array(number, dtype)[()]


def _of_numbers(name: Any) -> np.dtype[Any]:
    """An element type of numbers. Text is not saved as bytes, in which a character may be none."""
    dtype = dtype_of(name)
    if dtype.kind in "US":
        raise CorruptCheckpointError("plain state has no elements of this type in this form", found=name)
    return dtype


_FORMS: Final[dict[str, Callable[[_StateDecoder, dict[str, Any], int], Any]]] = {
    FORM: _StateDecoder._reference,
    **dict.fromkeys(("tuple", "set", "frozenset"), _StateDecoder._collection),
    **dict.fromkeys(("dict", "OrderedDict", "Counter"), _StateDecoder._mapping),
    "deque": _StateDecoder._deque,
    "defaultdict": _StateDecoder._defaultdict,
    "int": lambda decoder, value, depth: int(value["hex"], 16),
    "float": lambda decoder, value, depth: _float(value),
    "complex": _StateDecoder._complex,
    "str": lambda decoder, value, depth: value["escaped"].encode("ascii").decode("unicode_escape"),
    "bytes": lambda decoder, value, depth: decoder._bytes(value),
    "bytearray": lambda decoder, value, depth: bytearray(decoder._bytes(value)),
    "BytesIO": lambda decoder, value, depth: decoder._stream(value),
    "array": lambda decoder, value, depth: decoder._array(value),
    "objects": _StateDecoder._objects,
    "scalar": _StateDecoder._scalar,
}
"""By the form of an object in the text, the function that decodes it."""


def _float(value: dict[str, Any]) -> float:
    if "bits" in value:
        number: float = struct.unpack(">d", bytes.fromhex(value["bits"]))[0]
        return number
    return float(value["value"])
