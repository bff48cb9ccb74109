"""What a checkpoint of live objects would leave out, and how one knows.

Adapters name what they cannot save (`Adapter.omission`). Beside that, the framework's own account of an object is the
yardstick (`Adapter.account`): what its own way of saving would hold, such as a ``state_dict()``, has to be among what the
checkpoint holds. Whatever is not is an omission, whoever wrote the object's class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Omission(NamedTuple):
    """Why an object cannot be saved.

    Attributes:
        reason: Why, as a part of a sentence.
        remedy: What to do; empty for the general remedy (`milepost.graph.remedies`).
        doubtful: Whether it may well be meant, so that a save warns and does not fail.
    """

    reason: str
    remedy: str = ""
    doubtful: bool = False


class Accounted(NamedTuple):
    """One part of what a framework's own way of saving holds of an object.

    Attributes:
        steps: Names of the edges that lead from the object to what holds the part in a checkpoint.
        value: The part.
        variable: For a slot variable, the variable; ``steps`` then is the slot's name alone.
        remedy: What to do if a checkpoint lacks it.
        anywhere: Whether ``value`` is an object that may be held under any name, so that ``steps`` only name it in errors.
    """

    steps: Sequence[str]
    value: Any
    variable: Any = None
    remedy: str = ""
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Omitted:
    """Something that a checkpoint of live objects would not hold.

    Attributes:
        path: Its escaped path from the root.
        kind: The name of its type.
        reason: Why it would not be saved.
        remedy: What to do.
        doubtful: Whether it may well be meant.
    """

    path: str
    kind: str
    reason: str
    remedy: str
    doubtful: bool = False

    def is_allowed(self, paths: Iterable[str]) -> bool:
        """Whether one of these paths is its own, or that of an object above it."""
        return is_at_or_below(self.path, paths)


def is_at_or_below(path: str, paths: Iterable[str]) -> bool:
    """Whether an escaped path is one of these, or that of an object below one."""
    return any(above == "" or path == above or path.startswith(above + "/") for above in paths)
