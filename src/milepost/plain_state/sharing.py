"""Objects in several places of plain state. They are written once, and are one object again when they are read.

The first place has ``{"!": "shared", "id": 0, "value": ...}``, and every other place ``{"!": "shared", "id": 0}``. This applies to
mutable objects: lists, dicts, sets, arrays and tensors. For immutable ones it makes no difference, so numbers, text and tuples are
written in each place.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable, Mapping
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

    def begin(self, value: Any) -> int | None:
        """Notes that an object is being written in its first place. Returns its number, or None if it has no other place."""
        if id(value) not in self._shared:
            return None
        number = len(self._meetings.of)
        self._meetings.begin(number)
        return number

    def end(self, number: int, value: Any, form: Any) -> dict[str, Any]:
        """Notes that an object was written.

        Args:
            number: Its number, from `begin`.
            value: The object.
            form: The encoded object.

        Returns:
            What to write in this place.
        """
        self._meetings.end(number)
        self._numbers[id(value)] = number
        return {"!": FORM, "id": number, "value": form}


class Shared:
    """The shared objects of a state that is being decoded."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}
        self._meetings = _Meetings()

    def begin(self, members: Mapping[str, Any]) -> int | None:
        """Notes that an object is being read. Returns its number if this is its first place, and otherwise None.

        Raises:
            CorruptCheckpointError: A reference comes before its object, two objects have one number, or there are too many
                references.
        """
        number = members["id"]
        if type(number) is not int or (number in self._values) == ("value" in members):
            raise CorruptCheckpointError("plain state refers to an object that does not exist", found=f"{number!r:.80}")
        if "value" in members:
            self._meetings.begin(number)
            return number
        if not self._meetings.again(number):
            raise CorruptCheckpointError("this plain state has too many references", expected=f"up to {_MOST}")
        return None

    def end(self, number: int, value: Any) -> None:
        """Notes that an object was read in its first place."""
        self._meetings.end(number)
        self._values[number] = value

    def __getitem__(self, number: int) -> Any:
        """The object with a number."""
        return self._values[number]


class _Meetings:
    """Counts how often shared objects are met in a walk.

    Attributes:
        of: By the number of an object, how many shared objects are met below it.
    """

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self._total = 0
        self._before: dict[int, int] = {}

    def begin(self, number: int) -> None:
        """Begins the walk through an object in its first place. Until it ends, the object counts nothing."""
        self.of[number] = 0
        self._before[number] = self._total
        self._total += 1

    def end(self, number: int) -> None:
        """Ends the walk through an object in its first place."""
        self.of[number] = self._total - self._before.pop(number)

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
