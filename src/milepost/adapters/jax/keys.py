"""JAX's typed keys of random number generators. A key has two values: its words, and the name of its generator."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from milepost.adapters.jax.arrays import AbstractAdapter, JaxArrayAdapter, placement, read, successor, value_of
from milepost.adapters.jax.pieces import is_spread
from milepost.errors import MismatchError
from milepost.graph.adapter import Array, Shape, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.variable import as_array, own
from milepost.tensor import DType, PiecewiseArray, ShardedArray
from milepost.tensor.dtype import STRING

IMPLEMENTATION = "impl"
"""Local name of the generator's name, for example ``threefry2x32``."""


class KeyAdapter(JaxArrayAdapter):
    """Arrays of typed keys, as `jax.random.key` and `jax.random.split` make them."""

    array_type = ""

    def handles(self, kind: type) -> bool:
        # The class of keys has no public name. Values that are being traced are for the adapter of arrays, which refuses them.
        return issubclass(kind, jax.Array) and not (hasattr(kind, "weak_type") or issubclass(kind, jax.core.Tracer))

    def values(self, obj: Any) -> Sequence[Value]:
        one, implementation = _describe_one(obj.dtype)
        if is_spread(obj.sharding):
            words = value_of(jax.random.key_data(obj))
        else:
            words = Value(VARIABLE_VALUE, DType.of(one.dtype), (*obj.shape, *one.shape), partial(_read_words, obj))
        words.shape = _any_words(words)
        return (words, _name(implementation))

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        implementation, data = _describe_one(obj.dtype)[1], jax.random.key_data(obj)
        _check(implementation, data, arrays)
        data = successor(data, arrays[VARIABLE_VALUE])
        return jax.random.wrap_key_data(data, impl=implementation)


class AbstractKeyAdapter(AbstractAdapter):
    """`jax.ShapeDtypeStruct`, which may also describe keys."""

    def values(self, obj: Any) -> Sequence[Value]:
        if not _is_key(obj):
            return super().values(obj)
        data, implementation = _describe(obj)
        (value,) = super().values(data)
        value.shape = _any_words(data)
        return (value, _name(implementation))

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        if not _is_key(obj):
            return super().assign(obj, arrays)
        described, implementation = _describe(obj)
        _check(implementation, described, arrays)
        words, sharding = arrays[VARIABLE_VALUE], placement(obj)
        if sharding is None or not is_spread(sharding):
            keys = jax.random.wrap_key_data(jax.device_put(own(words)), impl=implementation)
            return keys if sharding is None else jax.device_put(keys, sharding)
        parts = [
            jax.random.wrap_key_data(jax.device_put(words[index].copy(), device), impl=implementation)
            for device, index in sharding.addressable_devices_indices_map(obj.shape).items()
        ]
        return jax.make_array_from_single_device_arrays(obj.shape, sharding, parts, dtype=obj.dtype)


def _is_key(obj: Any) -> bool:
    return not isinstance(obj.dtype, np.dtype) and bool(jax.dtypes.issubdtype(obj.dtype, jax.dtypes.prng_key))


def _read_words(keys: Any) -> Array | PiecewiseArray | ShardedArray:
    return read(jax.random.key_data(keys))


@functools.cache
def _describe_one(dtype: Any) -> tuple[Any, str]:
    """Describes one key of an element type: the shape and type of its words, and the name of its generator."""
    return _describe(jax.ShapeDtypeStruct((), dtype))


def _describe(obj: Any) -> tuple[Any, str]:
    """Describes abstract keys: the shape and type of their words, and the name of their generator."""
    names = []

    def words(keys: Any) -> Any:
        names.append(str(jax.random.key_impl(keys)))
        return jax.random.key_data(keys)

    return jax.eval_shape(words, obj), names[0]


def _name(implementation: str) -> Value:
    return Value(IMPLEMENTATION, STRING, (), partial(as_array, implementation))


def _any_words(data: Any) -> Shape:
    """The shape of the words of keys for any generator, so that an error about another generator names it."""
    return (*data.shape[:-1], None)


def _check(implementation: str, data: Any, arrays: Mapping[str, Array]) -> None:
    """Checks that saved keys are for the generator of the live keys.

    Args:
        implementation: The live generator.
        data: The words of the live keys, or their description.
        arrays: The saved values.

    Raises:
        MismatchError: The saved keys are for another generator.
    """
    saved = arrays[IMPLEMENTATION].item().decode(errors="replace") if IMPLEMENTATION in arrays else implementation
    words = arrays[VARIABLE_VALUE].shape[-1]
    if saved != implementation:
        raise MismatchError(
            "these keys were saved for another generator of random numbers",
            expected=f"{implementation}, as the live key has it",
            found=f"{saved} in the checkpoint",
            remedy=f"make the live key with jax.random.key(seed, impl={saved!r})",
        )
    if words != data.shape[-1]:
        raise MismatchError(
            "these keys were saved without the name of their random number generator, and do not fit the live one",
            expected=f"{data.shape[-1]} words a key, as {implementation} of the live key has",
            found=f"{words} words a key in the checkpoint",
            remedy="make the live key with another impl, as jax.random.key(seed, impl='rbg') does, which has 4 words, "
            "or 'threefry2x32', which has 2",
        )


register(KeyAdapter())
register(AbstractKeyAdapter())
