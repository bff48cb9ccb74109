"""Objects in several places of plain state. They are written once, and are one object again when they are read.

The first place has ``{"!": "shared", "id": 0, "value": ...}``, and every other place ``{"!": "shared", "id": 0}``. This applies to
mutable objects: lists, dicts, sets, arrays and tensors. For immutable ones it makes no difference, so numbers, text and tuples are
written in each place.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.plain_state.kinds import kinds, overlaps

FORM: Final = "shared"
_MOST: Final = 1 << 22
"""The most shared objects on a walk through a whole state. An object counts each time the walk reaches it.

Without this limit, a few objects that each hold the next one twice would take too long to walk through."""
_LEAVES: Final = frozenset({int, float, str, bool, complex, bytes, type(None), slice})


class Sharing:
    """The shared objects of a state that is being encoded.

    Args:
        state: The state.
    """

    def __init__(self, state: Any) -> None:
        self._numbers: dict[int, int] = {}
        self._meetings = _Meetings()
        self._shared, tensors = _found_again(state)
        self._substitutes: dict[int, Any] = {}
        if len(tensors) > 1:
            for find in overlaps.values():
                self._substitutes.update(find(tensors))
        self._shared.update(id(view) for identity, view in self._substitutes.items() if identity in self._shared)
        self._shared.update(id(owner) for each in self._substitutes.values() for owner in each.owners())

    def __bool__(self) -> bool:
        return bool(self._shared)

    def instead_of(self, value: Any) -> Any:
        """What to write for a value: its view, if it shares the memory of others, and otherwise the value itself."""
        return self._substitutes.get(id(value), value) if self._substitutes else value

    def reference(self, value: Any) -> dict[str, Any] | None:
        """What to write for an object that has been written already; None for an object that has not.

        Raises:
            UnsupportedError: The state has too many references.
        """
        number = self._numbers.get(id(value)) if self._numbers else None
        if number is None:
            return None
        if not self._meetings.again(number):
            raise UnsupportedError(
                "plain state with this many references cannot be saved",
                expected=f"up to {_MOST}",
                remedy="return copies of objects that are referred to many times, or state that is nested less deeply",
            )
        return {"!": FORM, "id": number}

    def written(self, value: Any, write: Callable[[], Any]) -> Any:
        """Writes an object in its first place, and notes that it was written.

        Args:
            value: The object.
            write: Encodes the object itself.
        """
        if id(value) not in self._shared:
            return write()
        number = len(self._meetings.of)
        form = self._meetings.first(number, write)
        self._numbers[id(value)] = number
        return {"!": FORM, "id": number, "value": form}


class Shared:
    """The shared objects of a state that is being decoded."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._meetings = _Meetings()

    def read(self, members: Mapping[str, Any], decode: Callable[[Any], Any]) -> Any:
        """The object in one of its places.

        Raises:
            CorruptCheckpointError: A reference comes before its object, two objects have one number, or there are too many
                references.
        """
        number = members["id"]
        if type(number) is not int or (number in self._values) == ("value" in members):
            raise CorruptCheckpointError("plain state refers to an object that does not exist", found=f"{number!r:.80}")
        if "value" in members:
            self._values[number] = self._meetings.first(number, lambda: decode(members["value"]))
        elif not self._meetings.again(number):
            raise CorruptCheckpointError("this plain state has too many references", expected=f"up to {_MOST}")
        return self._values[number]


class _Meetings:
    """Counts how often shared objects are met in a walk.

    Attributes:
        of: By the number of an object, how many shared objects are met below it.
    """

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self._total = 0

    def first(self, number: int, go: Callable[[], Any]) -> Any:
        """Walks through an object in its first place. Returns what ``go`` returned."""
        self.of[number] = 0
        before = self._total
        self._total += 1
        result = go()
        self.of[number] = self._total - before
        return result

    def again(self, number: int) -> bool:
        """Counts another place of an object. Returns false if there are too many."""
        self._total += self.of[number]
        return self._total <= _MOST


def _found_again(state: Any) -> tuple[set[int], list[Any]]:
    """The identities of mutable objects that are in several places of a state, and all tensors in it."""
    again: set[int] = set()
    seen: set[int] = set()
    tensors: list[Any] = []
    mutable = [kind for kind in kinds.values() if kind.mutable]
    pending: list[Any] = [state]
    while pending:
        value = pending.pop()
        kind = type(value)
        if kind in _LEAVES:
            continue
        inner = inside(value)
        is_tensor = inner is None and any(each.handles(value) for each in mutable)
        if inner is None and not is_tensor:
            continue
        if id(value) in seen:
            if not isinstance(value, (tuple, frozenset)):
                again.add(id(value))
            continue
        seen.add(id(value))
        if is_tensor:
            tensors.append(value)
        else:
            pending.extend(inner or ())
    return again, tensors


def inside(value: Any) -> Iterable[Any] | None:
    """The members of a container; None for a value that is not a container."""
    if isinstance(value, np.ndarray):
        return value.reshape(-1).tolist() if value.dtype.kind == "O" else ()
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return value
    return () if isinstance(value, (bytearray, io.BytesIO)) else None
