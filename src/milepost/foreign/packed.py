"""Packs parts of a file as plain state (`milepost.plain_state.encoding`), without reading the tensors in them."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from milepost.bundle.memory import Array
from milepost.errors import UnsupportedError
from milepost.foreign.opaque import Name, Opaque
from milepost.foreign.rebuilt import refusal
from milepost.foreign.stored import Stored
from milepost.graph.keys import VARIABLE_VALUE
from milepost.plain_state.encoding import TEXT, pack


def packed(value: Any, key: str, kind: str) -> dict[str, Array | Stored]:
    """Packs a part of a file.

    Args:
        value: Dicts, lists, plain values and `Stored`.
        key: The key that errors name.
        kind: The registered kind of its tensors in plain state, for example ``torch``; empty for arrays.

    Returns:
        The result of `milepost.plain_state.encoding.pack`, with `Stored` instead of tensors.

    Raises:
        UnsupportedError: Something in it is not plain state.
    """
    tensors: dict[int, tuple[Array, Stored]] = {}
    plain = _with_stand_ins(value, key, tensors)
    entries: dict[str, Array | Stored] = {}
    names = set()
    for name, array in pack(plain, key).items():
        stand_in = tensors.get(_address(array))
        if stand_in is None:
            entries[name] = array
        else:
            names.add(name)
            entries[name] = stand_in[1]
    assert len(names) == len(tensors), "no value of the state is at the address of a stand-in"
    if kind and names:
        text = entries[TEXT]
        assert isinstance(text, np.ndarray), "the text is never a tensor of the file"
        described = _described(json.loads(text.item()), names, kind)
        text[()] = json.dumps(described, ensure_ascii=False).encode()
    return entries


def _with_stand_ins(value: Any, key: str, tensors: dict[int, tuple[Array, Stored]]) -> Any:
    """A copy of a value in which each tensor is replaced by an array that takes no memory."""
    if isinstance(value, Stored):
        if value.local != VARIABLE_VALUE:
            raise UnsupportedError(
                "a tensor of this element type cannot be part of plain state",
                key=key,
                found=value.local,
                remedy="load the file with torch.load, convert the tensor, and save it again",
            )
        array = np.broadcast_to(np.zeros((), value.spec.dtype.numpy), value.spec.shape)
        tensors[_address(array)] = (array, value)
        return array
    if isinstance(value, (Opaque, Name)):
        raise refusal(value).with_context(key=key)
    if isinstance(value, Mapping):
        new = [(name, _with_stand_ins(each, f"{key}/{name!s:.80}", tensors)) for name, each in value.items()]
        if isinstance(value, defaultdict):
            return defaultdict(value.default_factory, new)
        if isinstance(value, Counter):
            return Counter(dict(new))
        return OrderedDict(new) if isinstance(value, OrderedDict) else dict(new)
    if type(value) in (list, tuple):
        return type(value)(_with_stand_ins(each, f"{key}/{number}", tensors) for number, each in enumerate(value))
    return value


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _described(text: Any, names: set[str], kind: str) -> Any:
    """The parsed text, in which arrays of these names are marked as tensors of the kind."""
    if isinstance(text, list):
        return [_described(each, names, kind) for each in text]
    if not isinstance(text, dict):
        return text
    if text.get("!") == "array" and text.get("entry") in names:
        return {"!": kind, "value": text}
    return {name: _described(each, names, kind) for name, each in text.items()}
