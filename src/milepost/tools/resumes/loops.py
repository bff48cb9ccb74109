"""Finds the iterators of the loops that run, which no variable holds.

Python's own frame of a function holds the iterator of a ``for``, where nothing can look. So all objects are searched for iterators that
refer to an object of the program.
"""

from __future__ import annotations

import gc
import inspect
import operator
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from milepost.tools.resumes.facts import SCALARS, Recorded, of_plain

_SOURCES: Final = ("_dataset", "_loader", "_ds_iter", "loader", "dataset", "sampler", "source")
_NO_SOURCE: Final = (*SCALARS, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def positions_of_loops(names: Mapping[int, str]) -> dict[str, Recorded]:
    """The positions of iterators over objects of the program.

    Args:
        names: The names of the objects of the program, by identity.

    Returns:
        What was recorded of each iterator, by the name of what it iterates over.
    """
    facts: dict[str, Recorded] = {}
    for each in gc.get_objects():
        kind = type(each)
        if not hasattr(kind, "__next__") or id(each) in names or kind.__module__.partition(".")[0] == "milepost":
            continue
        with suppress(Exception):  # an object of the program may raise anything when it is looked at
            source = next((names[id(part)] for part in _parts(each) if id(part) in names), None)
            position = None if source is None else _position(each)
            if position is not None:
                title = f"the position in {source}"
                digest = of_plain(position)
                assert digest is not None, "it is text"
                facts[title] = Recorded("iterator", digest[0], position, title, kind.__name__)
    return facts


def _parts(iterator: Any) -> Iterator[Any]:
    """What an iterator may iterate over."""
    if isinstance(iterator, types.GeneratorType):
        found = list(iterator.gi_frame.f_locals.values()) if iterator.gi_frame is not None else []
    elif hasattr(iterator, "__dict__"):
        found = [vars(iterator)[name] for name in _SOURCES if name in vars(iterator)]
    else:
        found = gc.get_referents(iterator)
    yield from (each for each in found if not isinstance(each, _NO_SOURCE))


def _position(iterator: Any) -> str | None:
    """How far an iterator is; None if it does not say so."""
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        if frame is None or inspect.getgeneratorstate(iterator) != inspect.GEN_SUSPENDED:
            return None  # one that runs is a function of the program itself
        numbers = {key: value for key, value in frame.f_locals.items() if isinstance(value, int)}
        return ", ".join([f"line {frame.f_lineno}", *(f"{key} = {value}" for key, value in numbers.items())])
    if hasattr(iterator, "__dict__"):
        numbers = {key: value for key, value in vars(iterator).items() if type(value) is int and "seed" not in key}
        return ", ".join(f"{key} = {value}" for key, value in sorted(numbers.items())) or None
    if hasattr(iterator, "__length_hint__"):
        return f"{operator.length_hint(iterator)} members left"
    return None
