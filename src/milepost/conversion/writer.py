"""The contract of formats that can be written: each states what it can hold, so a conversion is planned before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from milepost.conversion.plan import Exported
from milepost.tensor import DType

NOT_UTF8: Final = "the format has names in UTF-8 only"
"""The problem of a name that UTF-8 cannot encode."""


@dataclass(frozen=True)
class Writer:
    """A format that can be written.

    Attributes:
        name: What users call it.
        accepts: Whether it has an element type.
        paths: The files that would be written, by the target, the tensors, and the most bytes of a file (None for one file).
        write: Writes them. The arguments are those of ``paths`` and the open checkpoint; and ``metadata``, if it describes, and ``versions``, if it
            holds plain state. Returns the files.
        problem: Why it cannot hold a tensor of this name and shape, or None if it can.
        nests: Whether names are paths of directories or groups, so that no tensor can be below another one.
        divides: Whether a model can be in several files.
        describes: Whether a file can have metadata, which is text by names.
        problem_of_state: Why it cannot hold a value of plain state that is no tensor, or None if it can. A format with such values holds the
            ``state_dict()`` of modules, whose versions it can have too.
        present: The files that are there of an earlier conversion to a target, which would be read beside the new ones, or instead of them.
        remedy: What to do with a checkpoint that it cannot hold, if there is more to do than to leave values out.
    """

    name: str
    accepts: Callable[[DType], bool]
    paths: Callable[[str, Sequence[Exported], int | None], list[str]]
    write: Callable[..., list[str]]
    problem: Callable[[Exported], str | None] = lambda tensor: None
    nests: bool = False
    divides: bool = False
    describes: bool = False
    problem_of_state: Callable[[Any], str | None] | None = None
    present: Callable[[str], list[str]] = lambda target: []
    remedy: str = ""
