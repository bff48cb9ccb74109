"""Batches, which are nested dicts, lists and tuples of arrays: their values and their checksum. None in them is ignored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from milepost.coding.crc32c import crc32c


def leaves(data: Any) -> Iterator[Any]:
    """All values in nested dicts, lists and tuples except None."""
    if isinstance(data, dict):
        for name in data:
            yield from leaves(data[name])
    elif isinstance(data, (list, tuple)):
        for each in data:
            yield from leaves(each)
    elif data is not None:
        yield data


def map_leaves(function: Callable[[Any], Any], data: Any) -> Any:
    """The same nested dicts, lists and tuples with ``function`` applied to all values except None."""
    if isinstance(data, dict):
        return {name: map_leaves(function, each) for name, each in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(map_leaves(function, each) for each in data)
    return None if data is None else function(data)


def checksum(batch: Any) -> int:
    """CRC-32C of the bytes of all arrays in a batch."""
    value = 0
    for leaf in leaves(batch):
        array = np.ascontiguousarray(leaf)
        value = crc32c(array.reshape(-1).view(np.uint8), value) if array.dtype.kind != "O" else value
    return value
