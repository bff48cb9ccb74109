"""State of other people's objects as JSON: nested lists, tuples and dicts of numbers, text, bytes, arrays and tensors.

What JSON lacks is an object with the member ``"!"``::

    {"!": "tuple", "items": [...]}                          {"!": "bytes", "base64": "..."}
    {"!": "dict", "items": [[key, value], ...]}             {"!": "array", "dtype": "<u4", "shape": [2], "base64": "..."}
    {"!": "tensor", ...}                                    as an array, for PyTorch
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np

from milepost.errors import UnsupportedError

_PLAIN = (str, int, float, bool, type(None))


def to_json(value: Any, key: str) -> str:
    """Writes nested state as JSON.

    Args:
        value: The state.
        key: What to call it in errors.

    Raises:
        UnsupportedError: There is something in it that is no plain data.

    Example:
        >>> from_json(to_json({"position": (3, b"ab")}, "reader"))
        {'position': (3, b'ab')}
    """
    return json.dumps(_encode(value, key))


def from_json(text: str) -> Any:
    """What `to_json` was given."""
    return _decode(json.loads(text))


def _encode(value: Any, key: str) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, bytes):
        return {"!": "bytes", "base64": _base64(value)}
    if isinstance(value, tuple):
        return {"!": "tuple", "items": [_encode(each, f"{key}/{number}") for number, each in enumerate(value)]}
    if isinstance(value, list):
        return [_encode(each, f"{key}/{number}") for number, each in enumerate(value)]
    if isinstance(value, dict):
        if all(type(name) is str for name in value) and "!" not in value:
            return {name: _encode(each, f"{key}/{name}") for name, each in value.items()}
        items = [[_encode(name, key), _encode(each, f"{key}/{name}")] for name, each in value.items()]
        return {"!": "dict", "items": items}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return _array("array", np.asarray(value))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _array("tensor", value.detach().cpu().numpy())
    raise UnsupportedError(
        "this state cannot be saved",
        key=key,
        expected="numbers, text, bytes, arrays, tensors, and lists, tuples and dicts of them",
        found=f"a {type(value).__name__}",
        remedy="return state of plain data, or make the object a milepost.PythonState",
    )


def _array(kind: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {"!": kind, "dtype": array.dtype.str, "shape": list(array.shape), "base64": _base64(array.tobytes())}


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("!")
    if kind is None:
        return {name: _decode(each) for name, each in value.items()}
    if kind == "tuple":
        return tuple(_decode(each) for each in value["items"])
    if kind == "dict":
        return {_decode(name): _decode(each) for name, each in value["items"]}
    raw = base64.b64decode(value["base64"])
    if kind == "bytes":
        return raw
    array = np.frombuffer(raw, value["dtype"]).reshape(value["shape"]).copy()
    if kind == "tensor" and "torch" in sys.modules:
        return sys.modules["torch"].from_numpy(array)
    return array


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
