"""Copies of arrays on GPUs and TPUs in the memory of this machine, which JAX makes while the program continues.

The memory is pinned, which means that the system does not move it: a GPU copies several times faster into it. JAX keeps it when a copy
is freed, and uses it again. A function to which the program donates an array does not begin before the copy of that array is complete.

Source: JAX' documentation, "JAX Memories and Host Offloading".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax

_PINNED: Final = "pinned_host"
"""JAX' name of this memory."""

_most_copied = 0
"""The most bytes of which it is known that JAX has had enough of this memory for them."""


def copied_to_host(arrays: Sequence[Any]) -> Sequence[Any] | None:
    """Copies of arrays, which may be complete only when they are read.

    Args:
        arrays: Arrays of JAX, each on one device.

    Returns:
        The copies, which are arrays of JAX too; None if there is no such memory for them all.
    """
    global _most_copied
    if not all(_has_memory(array) for array in arrays):
        return None
    size = sum(array.nbytes for array in arrays)
    try:
        copies = jax.device_put(list(arrays), [array.sharding.with_memory_kind(_PINNED) for array in arrays])
        if size > _most_copied:
            jax.block_until_ready(copies)  # if there is not enough memory, JAX may say so only here
            _most_copied = size
    except (RuntimeError, ValueError):
        return None
    made: Sequence[Any] = copies
    return made


def _has_memory(array: Any) -> bool:
    """Whether an array is on a device with memory of its own."""
    (device,) = array.sharding.device_set
    if device.platform == "cpu" or array.sharding.memory_kind not in (None, "device"):
        return False
    return any(memory.kind == _PINNED for memory in device.addressable_memories())
