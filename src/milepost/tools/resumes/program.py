"""Which frames and classes belong to the program, and which to libraries."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Mapping
from types import FrameType
from typing import Any

_MAIN = "__main__"


@functools.cache
def _installed() -> tuple[str, ...]:
    """The directories of milepost, of Python's library and of installed libraries."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    libraries = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return tuple(os.path.join(each, "") for each in (own, *libraries))


@functools.cache
def _is_of_program(module: str, file: str | None) -> bool:
    if file is None:
        return module == _MAIN  # the code of `python -c`
    return not file.startswith("<") and not os.path.abspath(file).startswith(_installed())


def is_of_program(module: str | None) -> bool:
    """Whether a module, by its name, belongs to the program.

    Example:
        >>> is_of_program("os"), is_of_program("milepost.errors")
        (False, False)
    """
    loaded = sys.modules.get(module or "")
    return loaded is not None and _is_of_program(loaded.__name__, getattr(loaded, "__file__", None))


def frames_of_program(frame: FrameType | None) -> list[FrameType]:
    """The frames of the program in a stack, the innermost first."""
    frames = []
    while frame is not None:
        variables = frame.f_globals
        if _is_of_program(variables.get("__name__", ""), variables.get("__file__")):
            frames.append(frame)
        frame = frame.f_back
    return frames


def where(frame: FrameType) -> str:
    """What is said of a variable of a function: the function and the file."""
    code = frame.f_code
    return f" in {code.co_name}() of {os.path.basename(code.co_filename)}"


def of_module(variables: Mapping[str, Any]) -> str:
    """What is said of a variable of a module: its file if it is the program itself, and its name otherwise."""
    name, file = variables.get("__name__", ""), variables.get("__file__")
    return f" of {os.path.basename(file)}" if name == _MAIN and file else f" of {name}"
