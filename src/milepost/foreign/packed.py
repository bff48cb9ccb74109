"""Packs parts of a file as plain state (`milepost.plain_state.encoding`), without reading the tensors in them."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from milepost.bundle.memory import Array
from milepost.coding.depth import DEEPEST
from milepost.foreign.opaque import Name, Opaque
from milepost.foreign.pytorch.rebuilt import Symbol, of_kind, refusal, stream_of
from milepost.foreign.pytorch.tensors import strides_of
from milepost.foreign.stored import Stored
from milepost.plain_state.encoding import pack
from milepost.plain_state.enums import member_of_value
from milepost.plain_state.kinds import OfKind

_DEQUE: Final = Name("collections", "deque")
_AS_KEYS: Final = (Stored, Symbol)
"""What may be a key of a dict in plain state, and only files have."""


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
    entries: dict[str, Array | Stored] = {}
    for name, array in pack(_Replaced(kind, tensors).of(value, key, 0), key).items():
        stand_in = tensors.pop(_address(array), None)
        entries[name] = array if stand_in is None else stand_in[1]
    assert not tensors, "no value of the state is at the address of a stand-in"
    return entries


class _Replaced:
    """Copies values, with other objects instead of what only files have.

    Args:
        kind: As for `packed`.
        tensors: Gets the arrays that stand for tensors, each with its tensor, by address. They take no memory.
    """

    def __init__(self, kind: str, tensors: dict[int, tuple[Array, Stored]]) -> None:
        self._kind = kind
        self._tensors = tensors
        self._deques: dict[int, deque[Any] | None] = {}

    def of(self, value: Any, key: str, depth: int) -> Any:
        """The copy of a value.

        Args:
            value: The value.
            key: The key that errors name.
            depth: How many values it is inside of. What is too deep for plain state is not copied.
        """
        if depth > DEEPEST:
            return value
        if isinstance(value, Stored):
            return self._tensor(value)
        if isinstance(value, (Opaque, Name)):
            return self._object(value, key, depth)
        known = of_kind(value)
        if known is not None:
            return known
        if isinstance(value, Mapping):
            pairs = [
                (
                    self.of(name, key, depth) if isinstance(name, _AS_KEYS) else name,
                    self.of(member, f"{key}/{name!s:.80}", depth + 1),
                )
                for name, member in value.items()
            ]
            if isinstance(value, defaultdict):
                return defaultdict(value.default_factory, pairs)
            if isinstance(value, Counter):
                return Counter(dict(pairs))
            return OrderedDict(pairs) if isinstance(value, OrderedDict) else dict(pairs)
        if type(value) in (list, tuple):
            return type(value)(self._members(value, key, depth))
        return value

    def _members(self, values: Iterable[Any], key: str, depth: int) -> list[Any]:
        return [self.of(each, f"{key}/{number}", depth + 1) for number, each in enumerate(values)]

    def _tensor(self, value: Stored) -> Any:
        array = np.broadcast_to(np.zeros((), value.spec.dtype.numpy), value.spec.shape)
        self._tensors[_address(array)] = (array, value)
        if not self._kind:
            return array
        strides = strides_of(value)
        if strides is None:
            return OfKind(self._kind, array)
        return OfKind(f"{self._kind}.strided", {"strides": list(strides), "value": array})

    def _object(self, value: Opaque | Name, key: str, depth: int) -> Any:
        """A deque, or a member of an enumeration that the program has. All other objects are refused."""
        made: Any = stream_of(value) if isinstance(value, Opaque) else None
        if isinstance(value, Opaque) and made is None and value.state is None and value.entries is None:
            if value.name == _DEQUE:
                made = self._deque(value, key, depth)
            elif len(value.arguments) == 1 and value.items is None:
                made = member_of_value(value.name.module, value.name.name, value.arguments[0])
        if made is None:
            raise refusal(value).with_context(key=key)
        return made

    def _deque(self, value: Opaque, key: str, depth: int) -> deque[Any] | None:
        """A deque; None if it holds itself, or was not made as deques are."""
        if id(value) not in self._deques:
            self._deques[id(value)] = None  # as long as its members are copied
            first, most = (*value.arguments, *((), None)[len(value.arguments) :])[:2]
            if first == () and (most is None or (type(most) is int and most >= 0)):
                self._deques[id(value)] = deque(self._members(value.items or (), key, depth), most)
        return self._deques[id(value)]


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
