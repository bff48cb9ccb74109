"""Nested data as something that is equal only if all of it is equal, bit for bit, and that can be written as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

_DEEPEST = 12


def plain(value: Any, depth: int = 0) -> Any:
    """Nested data with a text for each leaf: its type and value, of arrays a checksum of their bytes."""
    if depth > _DEEPEST:
        return type(value).__name__
    if isinstance(value, Mapping):
        return {_key(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return {str(number): plain(each, depth + 1) for number, each in enumerate(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(_key(each) for each in value)
    if isinstance(value, (str, int, float, complex, bool, bytes, type(None))):
        return f"{type(value).__name__} {value!r}"
    found = _array(value)
    if found is not None:
        return _bits(found, type(value).__name__)
    if callable(value) or not hasattr(value, "__dict__"):
        return type(value).__name__
    return {"type": type(value).__name__, **plain(vars(value), depth + 1)}


def difference(found: Any, expected: Any, place: str = "") -> str:
    """Where two results of `plain` differ first, or nothing; empty mappings do not count."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in (*expected, *found):
            if found.get(key, {}) == expected.get(key, {}):
                continue
            if key not in found:
                return f"{place}/{key} is not there"
            if key not in expected:
                return f"{place}/{key} is there, and should not be"
            below = difference(found[key], expected[key], f"{place}/{key}")
            if below:
                return below
        return ""
    return "" if found == expected else f"{place or 'all'}: {str(found)[:70]} instead of {str(expected)[:70]}"


def _key(key: Any) -> str:
    if isinstance(key, (tuple, list)):
        return f"({', '.join(_key(each) for each in key)})"
    return str(key) if isinstance(key, (str, int)) else type(key).__name__


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if type(value).__module__.partition(".")[0] == "torch" or hasattr(value, "untyped_storage"):
        return _of_torch(value)
    if hasattr(value, "dtype") and "key<" in str(value.dtype):
        import jax

        return np.asarray(jax.random.key_data(value))
    return np.asarray(value) if hasattr(value, "__array__") else None


def _of_torch(value: Any) -> np.ndarray[Any, Any] | None:
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    if value.is_meta:
        return np.zeros(0, "float32")
    tensor = value.detach().cpu()
    tensor = (tensor.to_dense() if tensor.layout != torch.strided else tensor).resolve_conj().resolve_neg().contiguous()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    words: np.ndarray[Any, Any] = tensor.reshape(-1).view(torch.uint8).numpy()
    return np.frombuffer(f"{tensor.dtype} {tuple(tensor.shape)} ".encode() + words.tobytes(), np.uint8)


def _bits(array: np.ndarray[Any, Any], kind: str) -> str:
    data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return f"{kind} {array.dtype}{list(array.shape)} {hashlib.sha256(data).hexdigest()[:16]}"
