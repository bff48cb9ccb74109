"""JAX's arrays and typed keys as parts of plain state. A restore puts them on the default device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from milepost.adapters.jax.arrays import read
from milepost.adapters.jax.moved import enable_x64
from milepost.errors import UnsupportedError
from milepost.graph.adapter import Array
from milepost.plain_state.encoding import register_kind
from milepost.tensor import ShardedArray


def _is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and not _is_key(value)


def _gathered(array: Any) -> Array:
    elements = read(array)
    if isinstance(elements, ShardedArray):
        raise UnsupportedError(
            "other processes hold parts of an array in the plain state of an object",
            expected="an array that this process holds completely",
            found=f"{array.aval.str_short()}, {elements.layout}",
            remedy="hold the array in an attribute of the checkpoint or in a tree, or replicate it before saving, as in "
            "jax.device_put(array, NamedSharding(mesh, PartitionSpec()))",
        )
    return np.asarray(elements)


def _array(plain: Array) -> Any:
    with enable_x64(True):  # otherwise elements of 64 bits become narrower
        return jnp.array(plain)


def _key_to_plain(key: Any) -> dict[str, Any]:
    return {"implementation": str(jax.random.key_impl(key)), "data": _gathered(jax.random.key_data(key))}


def _key(plain: dict[str, Any]) -> Any:
    return jax.random.wrap_key_data(_array(plain["data"]), impl=plain["implementation"])


register_kind("jax", _is_array, _gathered, _array)
register_kind("jax key", _is_key, _key_to_plain, _key)
