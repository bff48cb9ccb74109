"""JAX arrays, and abstract arrays, which a restore turns into arrays.

An array cannot change, so a restore replaces it by a successor. The successor has the same element type and sharding, is committed
to its devices if the old array was, and has a weak type if the old array had. So nothing is compiled again for it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from milepost.adapters.jax.moved import enable_x64
from milepost.adapters.jax.pieces import (
    Whereabouts,
    are_read_at_once,
    boxes_here,
    elements,
    is_spread,
    reads_boxes,
    whereabouts,
)
from milepost.adapters.jax.private import PUT
from milepost.errors import UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Array, StoredTensor, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.variable import own
from milepost.tensor import DType, PiecewiseArray, ShardedArray, TensorSlice, TensorSpec

_WIDE: Final = 8
"""Bytes of the smallest elements that JAX may make narrower by default."""
_SMALL: Final = 64 << 10
"""The most bytes of an array that JAX takes longer to place than to copy."""
_REMEMBERED: Final = 1024
"""For how many kinds of arrays it is remembered what they have in common, and for how many kinds of small ones what JAX makes of them."""


class JaxArrayAdapter(Adapter):
    """`jax.Array`: one value."""

    leaf = True
    functional = True
    array_type = "jax.Array"

    def handles(self, kind: type) -> bool:
        return issubclass(kind, jax.Array)

    def may_refuse(self, obj: Any) -> bool:
        return False

    def is_value(self, obj: Any) -> bool:
        return True

    def is_new_array(self, obj: Any) -> bool:
        return not is_spread(obj.sharding) and isinstance(obj.dtype, np.dtype)

    def new_array(self, spec: TensorSpec, hints: Mapping[str, Array]) -> Any:
        return jax.ShapeDtypeStruct(spec.shape, spec.dtype.numpy)

    def values(self, obj: Any) -> Sequence[Value]:
        return (value_of(obj),)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> jax.Array:
        return successor(obj, arrays[VARIABLE_VALUE])


class TracerAdapter(Adapter):
    """Arrays inside a function that is being traced. They have no values."""

    leaf = True
    functional = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, jax.core.Tracer)

    def values(self, obj: Any) -> Sequence[Value]:
        raise UntrackableError(
            "this array is being traced, so it has no value to save or restore",
            found=f"{obj.aval.str_short()}, a {type(obj).__name__}",
            remedy="save and restore outside of jit, grad, vmap and scan",
        )


class AbstractAdapter(Adapter):
    """`jax.ShapeDtypeStruct`: describes an array, and takes no memory before it is restored."""

    leaf = True
    functional = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, jax.ShapeDtypeStruct)

    def may_refuse(self, obj: Any) -> bool:
        return False

    def values(self, obj: Any) -> Sequence[Value]:
        sharding = placement(obj)  # raises here if there is none, before anything changes
        value = Value(VARIABLE_VALUE, DType.of(obj.dtype), obj.shape, partial(_no_value, obj))
        if sharding is not None:
            value.in_boxes, value.boxes = is_spread(sharding), boxes_here(sharding, obj.shape)
        return (value,)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> jax.Array:
        array = arrays[VARIABLE_VALUE]
        made = _made(obj, array)
        if made.weak_type or not obj.weak_type:
            return made
        return successor(_Like(made.aval.update(weak_type=True), made.sharding, made.committed), array)


def _made(like: jax.ShapeDtypeStruct, array: Array) -> jax.Array:
    """An array of these elements where the abstract one says, without a weak type."""
    sharding = placement(like)
    if sharding is not None and is_spread(sharding):
        with _width_of(like.dtype):
            return jax.make_array_from_callback(like.shape, sharding, reads_boxes(array), dtype=like.dtype)
    if array.nbytes <= _SMALL:
        around = jax.config.jax_default_device, jax.sharding.get_abstract_mesh()
        return successor(_like(array.shape, array.dtype, sharding, around), array)
    with _width_of(like.dtype):
        return jax.device_put(own(array), sharding)


class _Like(NamedTuple):
    """What `successor` asks of an array."""

    aval: Any
    sharding: Any
    committed: bool


@functools.lru_cache(_REMEMBERED)
def _like(shape: tuple[int, ...], dtype: Any, sharding: Any, around: tuple[Any, ...]) -> _Like:
    """What `jax.device_put` makes of an array of NumPy, which it takes long to find out.

    Args:
        shape: The shape of the array.
        dtype: Its element type.
        sharding: Where it is put; None for the default device.
        around: What the program has set that decides this too: the default device, and the mesh. `jax.device_put` looks it up itself; it is
            an argument so that the result is remembered for these settings alone.
    """
    with _width_of(dtype):
        made = jax.device_put(np.zeros(shape, dtype), sharding)
    return _Like(made.aval, made.sharding, made.committed)


class _Kind(NamedTuple):
    """What all arrays of one shape, element type and sharding have in common.

    Attributes:
        dtype: The element type.
        where: Where they lie.
        boxes: As for `Value`.
        at_once: Whether each is read without a noticeable delay, and without a copy.
        devices: The only device in a list, if `where` has one.
        may_narrow: Whether JAX may make the elements narrower by default.
    """

    dtype: DType
    where: Whereabouts
    boxes: Sequence[TensorSlice] | None
    at_once: bool
    devices: list[Any]
    may_narrow: bool


@functools.lru_cache(_REMEMBERED)
def _kind_of(sharding: Any, shape: tuple[int, ...], dtype: Any) -> _Kind:
    where = whereabouts(sharding)
    alone = where.device is not None
    boxes = None if alone else boxes_here(sharding, shape)
    at_once = are_read_at_once(where, shape, dtype)
    return _Kind(DType.of(dtype), where, boxes, at_once, [where.device] if alone else [], dtype.itemsize >= _WIDE)


def value_of(array: Any) -> Value:
    """The value of a `jax.Array`."""
    aval = array.aval
    shape = aval.shape
    kind = _kind_of(array.sharding, shape, aval.dtype)
    value = Value(VARIABLE_VALUE, kind.dtype, shape, partial(_read, array, kind))
    if not kind.devices:
        value.in_boxes, value.boxes = True, kind.boxes
    return value


def placement(abstract: Any) -> Any:
    """The sharding of the array that an abstract array describes. An abstract mesh stands for the mesh in use.

    Raises:
        UnsupportedError: The mesh is abstract, and no mesh or a different one is in use; or an array of this shape cannot have
            this sharding.
    """
    sharding = abstract.sharding
    if not isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):
        return _that_fits(sharding, abstract)
    mesh = jax.sharding.get_mesh()
    if mesh.abstract_mesh == sharding.mesh:
        return _that_fits(jax.sharding.NamedSharding(mesh, sharding.spec), abstract)
    raise UnsupportedError(
        "an abstract array says how it is sharded, but not over which devices",
        expected=f"{sharding.mesh} in use",
        found="none" if mesh.empty else mesh,
        remedy="restore it within jax.set_mesh(mesh)",
    )


def _that_fits(sharding: Any, abstract: Any) -> Any:
    if sharding is None:
        return None
    try:
        sharding.shard_shape(abstract.shape)
    except ValueError as error:
        raise UnsupportedError(
            f"an array of this shape cannot be sharded as the live abstract array says: {error}",
            expected="each dimension a multiple of the number of devices along it",
            found=f"{abstract}; nothing was changed",
            remedy="give the jax.ShapeDtypeStruct another sharding, or none",
        ) from None
    if not sharding.addressable_devices and jax.process_count() == 1:
        raise UnsupportedError(
            "no device in the sharding of an abstract array belongs to this process",
            found=f"{abstract}; nothing was changed",
            remedy="give the jax.ShapeDtypeStruct a sharding over a mesh that has devices of this process",
        )
    return sharding


def read(array: Any) -> Array | PiecewiseArray | ShardedArray:
    """The elements of a `jax.Array`. On a CPU this is the array's own memory, which cannot change.

    Raises:
        UntrackableError: The array was deleted.
    """
    return _read(array, _kind_of(array.sharding, array.shape, array.dtype))


def _read(array: Any, kind: _Kind) -> Array | PiecewiseArray | ShardedArray:
    try:
        return np.asarray(array) if kind.at_once else elements(array, kind.where)
    except RuntimeError:
        if not array.is_deleted():
            raise
    raise UntrackableError(
        "this array has been deleted, as happens to arrays that are donated to a compiled function",
        found=array.aval.str_short(),
        remedy="replace the donated arrays in the checkpoint by the function's results before saving",
    )


def successor(old: Any, array: Array | StoredTensor) -> Any:
    """Makes the array that replaces another one.

    Args:
        old: The array to replace. The new array has its sharding, and is committed and weakly typed if ``old`` is. The elements
            of ``old`` are not read, because it may have been donated.
        array: The new elements, of the same element type and shape.
    """
    aval, sharding = old.aval, old.sharding
    shape = aval.shape
    _, _, _, _, devices, may_narrow = _kind_of(sharding, shape, aval.dtype)
    if not devices:
        indices, box_at = sharding.addressable_devices_indices_map(shape), reads_boxes(array)
        with _width_of(aval.dtype):
            return PUT(aval, sharding, [box_at(index) for index in indices.values()], list(indices), old.committed)
    assert isinstance(array, np.ndarray), "arrays on one device are not read in boxes"
    array = own(array)  # JAX may keep the memory
    if not may_narrow:
        return PUT(aval, sharding, [array], devices, old.committed)
    with _width_of(aval.dtype):
        return PUT(aval, sharding, [array], devices, old.committed)


def _width_of(dtype: Any) -> contextlib.AbstractContextManager[Any]:
    """Keeps JAX from making 64-bit elements narrower than those of the live array, however JAX is configured."""
    if dtype.itemsize < _WIDE or jax.config.jax_enable_x64:
        return contextlib.nullcontext()
    wide: contextlib.AbstractContextManager[Any] = enable_x64(True)
    return wide


def _no_value(obj: Any) -> Array:
    raise UntrackableError(
        "an abstract array has no value to save",
        found=str(obj),
        remedy="restore it first, or put an array in its place",
    )


register(JaxArrayAdapter())
register(TracerAdapter())
register(AbstractAdapter())
