"""Telling what a program makes as it goes on from what it builds again.

Saved values are deferred for what a program builds again after a restore. What comes, and where, tells the two apart:

====================================================  ===================================================================
what comes                                            whose value it has then
====================================================  ===================================================================
a variable, layer or other object                     the saved one: it was built again
an array, as an attribute of a `Module`               the saved one likewise
an array under a name of a `Checkpoint`               the saved one, until the next save; from then on its own
an array at the end of a list that was there before   its own: a position does not say which value is meant
an array at the end of a list that came later         the saved one, until the next save; from then on its own
a variable at the end of a `Checkpoint`'s list        the saved one, until the next save; from then on its own
a longer tree in the place of one that was restored   its own, if a `Checkpoint` holds it
====================================================  ===================================================================

What lies in the dicts, lists and tuples of a `Checkpoint` is the `Checkpoint`'s.
Whenever something keeps its own value although a saved one was deferred there, a warning says so, and nothing is deferred there any more.
An array here is also a list, dict or tuple of arrays and plain values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from milepost.errors import UnrestoredWarning, warn
from milepost.graph.adapter import adapter_of
from milepost.graph.plain.places import StateHolder, holds_state
from milepost.graph.plain.values import is_value

_MOST_LISTED: Final = 5


class Taken(NamedTuple):
    """What a member that was appended to a list has taken.

    Attributes:
        file: The checkpoint.
        key: The key of the value.
        siblings: How many members were saved.
    """

    file: str
    key: str
    siblings: int


class Saved(Protocol):
    """A saved value that is deferred or was taken; see `milepost.deferred.table.Position`."""

    @property
    def file(self) -> str:
        """The checkpoint."""
        ...

    @property
    def key(self) -> str:
        """The key of the value, or of the first of several."""
        ...


class Waiting(Saved, Protocol):
    """A deferred value."""

    @property
    def was_passed(self) -> bool:
        """Whether the program has saved since the restore."""
        ...

    @property
    def is_late(self) -> bool:
        """Whether the object that lacks it came after the restore itself."""
        ...

    @property
    def superseded(self) -> bool:
        """Whether a newer restore gives this value."""
        ...


def is_own(holder: Any, name: Any, child: Any, saved: Collection[Waiting]) -> bool:
    """Whether a child keeps its own value although saved ones are deferred for it.

    Args:
        holder: The object that gets the child.
        name: The name of the edge.
        child: The child.
        saved: The values that are deferred for it.
    """
    saved = [each for each in saved if not each.superseded]
    in_list = isinstance(holder, list) and isinstance(holder, StateHolder)
    is_state = holds_state(holder)
    if not saved or not (in_list or is_state):
        return False
    passed = is_state and all(each.was_passed for each in saved)
    if not (passed or (in_list and not any(each.is_late for each in saved))):
        return False
    adapter = adapter_of(child) if passed and in_list else None
    return (adapter is not None and adapter.leaf) or is_value(child)


def warn_of_own(saved: Sequence[Saved], *, in_list: bool) -> None:
    """Warns that the program's own value stands where saved ones were deferred.

    Args:
        saved: The values that were deferred there.
        in_list: Whether for the next members of a list.
    """
    where = "a list got a new member" if in_list else "the program put a new value"
    remedy = (
        "to have it in the list, append it, or restore a checkpoint of milepost's into an empty list"
        if in_list
        else "to have it in this place, assign it, or let the program hold something there when it restores"
    )
    warn(
        f"{saved[0].file}: {where} where {_count(saved)} {'was' if len(saved) == 1 else 'were'} deferred ({_keys(saved)}). The new value stays, and the next save drops "
        f"what was saved. load_checkpoint({saved[0].file!r}).get_tensor(key) reads it; {remedy}",
        UnrestoredWarning,
    )


def warn_of_more(taken: Sequence[Saved]) -> None:
    """Warns that a list gets one more member than it was saved with, after others took saved values.

    Args:
        taken: What was given to members that were appended since the restore.
    """
    warn(
        f"{taken[0].file}: {_count(taken)} went to objects that were appended to a list after the restore ({_keys(taken)}), and now "
        "the list gets one more than was saved. If those objects were new, and not built again, they lost their own values: let the "
        "list have its saved members before more are appended, or hold arrays instead of variables: a list of arrays is restored as a "
        "whole if it is empty",
        UnrestoredWarning,
    )


def _count(saved: Sequence[Saved]) -> str:
    return "one saved value" if len(saved) == 1 else f"{len(saved)} saved values"


def _keys(saved: Sequence[Saved]) -> str:
    keys = [each.key.partition("/.ATTRIBUTES/")[0] for each in saved[:_MOST_LISTED]]
    return ", ".join(keys) + (f" and {len(saved) - _MOST_LISTED} more" if len(saved) > _MOST_LISTED else "")
