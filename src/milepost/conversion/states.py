"""Plain state of objects in files that hold a ``state_dict()`` of PyTorch: the extra state of modules, and what a module adds to its ``state_dict()``
by code of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.memory import Array
from milepost.checkpoint.save_tree import ATTRIBUTES as DICT_ATTRIBUTES
from milepost.errors import MilepostError, UnsupportedError
from milepost.foreign import ForeignReader
from milepost.foreign.items import walked
from milepost.foreign.packed import packed
from milepost.foreign.pytorch.rebuilt import METADATA
from milepost.foreign.stored import Stored
from milepost.graph.keys import EXTRA_STATE, escape, unescape
from milepost.graph.saved.object_graph import Node, ObjectGraph
from milepost.plain_state.arrays import Padding
from milepost.plain_state.decoding import unpack
from milepost.plain_state.kinds import OfKind
from milepost.plain_state.part import accounts_in, is_plain_state
from milepost.tensor import DType

_TENSOR: Final = "torch"
_STRIDED: Final = "torch.strided"
_GRADIENT: Final = "torch.gradient"
_VIEW: Final = "torch.view"


class PlainState(NamedTuple):
    """The plain state of an object.

    Attributes:
        keys: The keys of its tensors.
        value: The state. `milepost.plain_state.kinds.OfKind` stands for what belongs to a framework.
        is_account: Whether it is what a module adds to its ``state_dict()``: a dict by names with dots.
        versions: If it is what an `OrderedDict` has as its attributes, the versions of modules among these, by their names with dots.
    """

    keys: list[str]
    value: Any
    is_account: bool
    versions: Mapping[str, Any] | None = None

    def parts(self, path: str) -> Iterator[tuple[str, Any]]:
        """The values that a ``state_dict()`` has for it, each with its path.

        Args:
            path: A path of the object.
        """
        if self.versions is not None:
            return
        if not self.is_account:
            yield path, self.value
            return
        module = path.rpartition("/")[0]
        for name, value in self.value.items():  # `states_of` has looked at the type
            yield "/".join([*filter(None, [module]), *map(escape, name.split("."))]), value


def states_of(reader: BundleReader, graph: ObjectGraph) -> dict[int, PlainState]:
    """The plain states of a checkpoint, by the numbers of their objects.

    Raises:
        CorruptCheckpointError: One of them is damaged.
    """
    padding = Padding()
    accounts = accounts_in(graph)
    attributes = {edge.node for _, node in graph.inner for edge in node.children if edge.name == DICT_ATTRIBUTES}
    states = {}
    for number, node in enumerate(graph.nodes):
        if node.values and is_plain_state(node):
            value = _state(reader, node, padding)
            is_account = number in accounts and isinstance(value, dict) and all(isinstance(name, str) for name in value)
            versions = None
            if number in attributes and isinstance(value, dict):
                known = value.get(METADATA)
                versions = known if isinstance(known, dict) else {}
            states[number] = PlainState([each.key for each in node.values], value, is_account, versions)
    return states


def states_in_file(reader: ForeignReader) -> Iterator[tuple[str, PlainState]]:
    """The extra states of modules in a file of another library, each with its name."""
    if not any(EXTRA_STATE in key for key in (*reader.keys(), *reader.catalogue().not_arrays)):
        return
    keys = {id(item.value): item.key for item in walked(reader.root) if isinstance(item.value, Stored)}
    padding = Padding()
    for item in walked(reader.root):
        name = item.key.rpartition("/")[2].rpartition(".")[2]
        if name == EXTRA_STATE and item.has_value and not isinstance(item.value, Stored):
            with suppress(UnsupportedError):  # which is said of the object in it
                packed_arrays = packed(item.content, item.key, reader.origin.tensors)
                arrays = {
                    local: reader.read(keys[id(each)]) if isinstance(each, Stored) else each
                    for local, each in packed_arrays.items()
                }
                below = [each.key for each in walked(item) if each.key in reader]
                yield item.key, PlainState(below or [item.key], unpack(arrays, padding, made=False), is_account=False)


def _state(reader: BundleReader, node: Node, padding: Padding) -> Any:
    arrays = {unescape(value.name): reader.read(value.key) for value in node.values}
    try:
        return unpack(arrays, padding, made=False)
    except MilepostError as error:
        raise error.with_context(key=node.values[0].key, file=reader.prefix) from error.__cause__


def gradient_of(value: OfKind) -> tuple[bool, bool]:
    """Whether a tensor in plain state is a parameter, and whether it requires a gradient."""
    plain: Any = value.plain
    gradient = plain if value.kind == _GRADIENT else plain.get("gradient", {}) if value.kind == _VIEW else {}
    return gradient.get("parameter") is True, gradient.get("required") is True


def tensor_of(value: Any) -> Array | None:
    """The elements of a tensor of PyTorch in plain state. None for anything else."""
    if not isinstance(value, OfKind):
        return None
    plain: Any = value.plain
    if value.kind == _TENSOR:
        return plain if isinstance(plain, np.ndarray) else None
    if not isinstance(plain, Mapping):
        return None
    if value.kind == _STRIDED:
        inner = plain.get("value")
        return inner if isinstance(inner, np.ndarray) else None
    if value.kind == _GRADIENT:
        return tensor_of(plain.get("value"))
    try:
        return _viewed(plain) if value.kind == _VIEW else None
    except (LookupError, TypeError, ValueError, UnsupportedError):
        return None


def _viewed(members: Mapping[str, Any]) -> Array | None:
    """The elements of a tensor that is in the memory of another one. None if there are more of them than the memory has."""
    owner = tensor_of(members["of"])
    dtype = DType.of(members["dtype"]).numpy
    offset, shape, strides = members["offset"], members["shape"], members["strides"]
    if owner is None or not all(type(each) is int and each >= 0 for each in (offset, *shape, *strides)):
        return None
    if not all(shape):
        return np.empty(shape, dtype)
    raw = np.ascontiguousarray(owner).reshape(-1).view(np.uint8)
    last = offset + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if max(last + 1, math.prod(shape)) * dtype.itemsize > raw.size:
        return None
    whole = raw[: raw.size // dtype.itemsize * dtype.itemsize].view(dtype)
    steps = [step * dtype.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(whole[offset:], shape, steps, writeable=False)
