"""Detects changes of plain data without a copy of it.

Fingerprints are compared only within one process. Of an array of more than `_LONG` bytes, `_SAMPLES` evenly spaced
elements are used. So a new order is detected, but a change of a few elements may not be.
"""

from __future__ import annotations

import sys
import zlib
from collections import deque
from typing import Any, Final

import numpy as np

SCALARS: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
_LONG: Final = 1 << 24
_SAMPLES: Final = 1 << 18


def is_plain(value: Any) -> bool:
    """Whether a value consists of numbers, text, bytes, None, arrays and CPU tensors, in lists, tuples, dicts, sets and deques."""
    kind = type(value)
    if kind in SCALARS or isinstance(value, np.generic):
        return True
    if kind in (list, tuple, set, frozenset, deque):
        kinds = set(map(type, value))
        return kinds <= SCALARS or all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return as_array(value) is not None


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """An array, or a tensor of PyTorch or JAX in CPU memory, as an array. None for anything else."""
    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.device.type == "cpu" and not value.is_sparse:
        value = value.detach()
        return np.asarray(value.view(torch.uint8) if value.dtype is torch.bfloat16 and value.dim() else value)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.Array):
        return np.asarray(
            jax.random.key_data(value) if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key) else value
        )
    return None


def fingerprint(value: Any) -> Any:
    """A value that is equal for equal plain data, and almost never for other data."""
    kind = type(value)
    if kind is float:
        return kind, repr(value)
    if kind in SCALARS:
        return kind, value
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    if kind in (list, tuple, deque):
        if set(map(type, value)) <= SCALARS:
            return kind, len(value), hash(tuple(value))
        return kind, tuple(map(fingerprint, value))
    if kind in (set, frozenset):
        return kind, frozenset(map(fingerprint, value))
    if isinstance(value, dict):
        return kind, tuple((fingerprint(name), fingerprint(each)) for name, each in value.items())
    array = as_array(value)
    assert array is not None, "is_plain() was asked"
    return kind, array_fingerprint(array)


def array_fingerprint(array: np.ndarray[Any, Any]) -> tuple[str, tuple[int, ...], int]:
    """Type, shape and a checksum of an array: the same in every process, except for arrays of objects other than text."""
    if array.nbytes > _LONG:
        array_read = array.reshape(-1) if array.flags.c_contiguous else array[:: max(1, len(array) // 4096)].reshape(-1)
        array_read = array_read[:: max(1, array_read.size // _SAMPLES) | 1]
    else:
        array_read = array
    if array.dtype.kind == "O":
        return array.dtype.str, array.shape, zlib.crc32("\0".join(map(repr, array_read.reshape(-1).tolist())).encode())
    return array.dtype.str, array.shape, zlib.crc32(np.ascontiguousarray(array_read).reshape(-1).view(np.uint8))


def size_of(value: Any) -> int:
    """The approximate size of plain data in bytes."""
    if isinstance(value, dict):
        return sum(size_of(name) + size_of(each) for name, each in value.items())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        kinds = set(map(type, value))
        return 8 * len(value) if kinds <= {int, float, bool, type(None)} else sum(map(size_of, value))
    array = as_array(value)
    if array is not None:
        return int(array.nbytes)
    return len(value) if isinstance(value, (str, bytes)) else 8
