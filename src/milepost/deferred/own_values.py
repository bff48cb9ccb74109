"""Tells the program's own new values from values that it builds again after a restore.

Saved values are deferred for objects that a program builds again. The kind of the new object, and its place, decide:

====================================================  ===================================================================
new object                                            its value
====================================================  ===================================================================
a variable, layer or other object                     the saved one, because the program built it again
an array, as an attribute of a `Module`               the saved one, for the same reason
an array under a name of a `Checkpoint`               the saved one until the next save, then its own
an array at the end of a list that existed before     its own, because a position does not tell which value is meant
an array at the end of a list that was made later     the saved one until the next save, then its own
a variable at the end of a list of a `Checkpoint`     the saved one until the next save, then its own
a longer tree that replaces a restored one            its own, if a `Checkpoint` holds it
====================================================  ===================================================================

The dicts, lists and tuples of a `Checkpoint` count as the `Checkpoint` itself. A list, dict or tuple of arrays and plain values
counts as an array. If an object keeps its own value although a saved one is deferred there, a warning is issued, and
the saved value is not deferred any more.
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
    """The saved value of a member that was appended to a list.

    Attributes:
        file: The checkpoint.
        key: The key of the value.
        siblings: How many members were saved.
    """

    file: str
    key: str
    siblings: int


class Saved(Protocol):
    """A saved value, deferred or already taken; see `milepost.deferred.table.Position`."""

    @property
    def file(self) -> str:
        """The checkpoint."""
        ...

    @property
    def key(self) -> str:
        """The key of the value, or of the first of several."""
        ...


class DeferredValue(Saved, Protocol):
    """A deferred value."""

    @property
    def was_passed(self) -> bool:
        """Whether the program has saved since the restore."""
        ...

    @property
    def is_late(self) -> bool:
        """Whether the object that lacks it was itself made after the restore."""
        ...

    @property
    def superseded(self) -> bool:
        """Whether a newer restore supersedes it."""
        ...


def is_own(holder: Any, child: Any, saved: Collection[DeferredValue]) -> bool:
    """Whether a child keeps its own value although saved ones are deferred for it.

    Args:
        holder: The object that gets the child.
        child: The child.
        saved: The values that are deferred for it.
    """
    in_list = isinstance(holder, list) and isinstance(holder, StateHolder)
    is_state = holds_state(holder)
    if not saved or not (in_list or is_state):
        return False
    saved = [each for each in saved if not each.superseded]
    if not saved:
        return False
    passed = is_state and all(each.was_passed for each in saved)
    if not (passed or (in_list and not any(each.is_late for each in saved))):
        return False
    adapter = adapter_of(child) if passed and in_list else None
    return (adapter is not None and adapter.leaf) or is_value(child)


def warn_of_own(saved: Sequence[Saved], *, in_list: bool) -> None:
    """Warns that an object keeps its own value although saved values were deferred there.

    Args:
        saved: The values that were deferred there.
        in_list: Whether they were deferred for the next members of a list.
    """
    event = "a list got a new member" if in_list else "the program put a new value"
    remedy = (
        "to have it in the list, append it, or restore a checkpoint that milepost saved into an empty list"
        if in_list
        else "to have it in this place, assign it, or let the program hold an object there before it restores"
    )
    warn(
        f"{saved[0].file}: {event} where {_count(saved)} {'was' if len(saved) == 1 else 'were'} deferred ({_keys(saved)}). The new value stays, and the next save does not "
        f"write the saved one. load_checkpoint({saved[0].file!r}).get_tensor(key) reads the saved value; {remedy}",
        UnrestoredWarning,
    )


def warn_of_more(taken: Sequence[Saved]) -> None:
    """Warns that a list gets more members than were saved, after appended members took saved values.

    Args:
        taken: The saved values of members that were appended since the restore.
    """
    warn(
        f"{taken[0].file}: {_count(taken)} went to objects that were appended to a list after the restore ({_keys(taken)}), and now "
        "the list gets more members than were saved. If those objects were new, and not built again, they lost their own values: "
        "append the saved members before new ones, or use arrays instead of variables, since an empty list of arrays is restored "
        "as a whole",
        UnrestoredWarning,
    )


def _count(saved: Sequence[Saved]) -> str:
    return "one saved value" if len(saved) == 1 else f"{len(saved)} saved values"


def _keys(saved: Sequence[Saved]) -> str:
    keys = [each.key.partition("/.ATTRIBUTES/")[0] for each in saved[:_MOST_LISTED]]
    return ", ".join(keys) + (f" and {len(saved) - _MOST_LISTED} more" if len(saved) > _MOST_LISTED else "")
