"""Omissions: state that a checkpoint of live objects would leave out.

There are two sources. An adapter names objects that it cannot save (`Adapter.omission`). A framework's own account of
an object (`Adapter.account`), such as its ``state_dict()``, names parts. Each part that the checkpoint lacks is an
omission, whoever wrote the class of the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Omission(NamedTuple):
    """Why an object cannot be saved.

    Attributes:
        reason: Why, as a part of a sentence.
        remedy: What to do. Empty for the general remedy (`milepost.graph.remedies`).
        doubtful: Whether it may be left out on purpose, so that a save warns and does not fail.
        parts: What would be left out, if other objects may hold it too. Nothing is left out if the checkpoint has all of it.
    """

    reason: str
    remedy: str = ""
    doubtful: bool = False
    parts: tuple[Any, ...] = ()


class Unnamed:
    """A member of a dict under a key that is no text, so that no path can name it. An adapter returns it as the child ``str(key)``.

    Args:
        value: The member.
        remedy: What to do.
    """

    __slots__ = ("remedy", "value")

    def __init__(self, value: Any, remedy: str) -> None:
        self.value = value
        self.remedy = remedy


class Accounted(NamedTuple):
    """One part of a framework's own account of an object.

    Attributes:
        steps: Names of the edges from the object to the node that holds the part in a checkpoint.
        value: The part.
        variable: For a slot variable, the variable. Then ``steps`` is only the name of the slot.
        remedy: What to do if a checkpoint lacks the part.
        anywhere: Whether ``value`` is an object that may have any name, so that ``steps`` only name it in errors.
    """

    steps: Sequence[str]
    value: Any
    variable: Any = None
    remedy: str = ""
    anywhere: bool = False


class Omitted(NamedTuple):
    """Something that a checkpoint of live objects would not hold.

    Attributes:
        path: Its escaped path from the root.
        kind: The name of its type.
        reason: Why it would not be saved.
        remedy: What to do.
        doubtful: Whether it may be left out on purpose.
    """

    path: str
    kind: str
    reason: str
    remedy: str
    doubtful: bool = False

    def is_allowed(self, paths: Iterable[str]) -> bool:
        """Whether one of these paths is its path, or that of an object above it."""
        return is_at_or_below(self.path, paths)


def is_at_or_below(path: str, paths: Iterable[str]) -> bool:
    """Whether an escaped path is one of these paths, or below one."""
    return any(above == "" or path == above or path.startswith(above + "/") for above in paths)
