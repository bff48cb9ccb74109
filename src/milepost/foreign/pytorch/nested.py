"""Makes nested dicts and lists from values that have paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from milepost.errors import CorruptCheckpointError

Path = tuple[str | int, ...]
"""Steps through dicts, which are text, and lists, which are numbers. The first step is text."""


class _Level(dict[str | int, Any]):
    """A dict or list that is being made. The keys of a list are its positions."""


def nested(values: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    """Makes a nested dict.

    Args:
        values: The values, each with its path. A path has at most 100 steps.

    Returns:
        The outer dict. A list that lacks some positions is a dict of those that are there, because empty dicts have no values, and
        so no paths.

    Raises:
        CorruptCheckpointError: Two values have one path, or one is inside the other.

    Example:
        >>> nested([(("a", 0), 1), (("a", 1, "x"), 2)])
        {'a': [1, {'x': 2}]}
    """
    root = _Level()
    for path, value in values:
        level = root
        for step in path[:-1]:
            level = level.setdefault(step, _Level())
            if not isinstance(level, _Level):
                raise _contradiction(path)
        if path[-1] in level:
            raise _contradiction(path)
        level[path[-1]] = value
    made = _made(root)
    assert isinstance(made, dict), "the first step of a path is text"
    return made


def _made(value: Any) -> Any:
    if not isinstance(value, _Level):
        return value
    if value and all(number in value for number in range(len(value))):
        return [_made(value[number]) for number in range(len(value))]
    return {step: _made(each) for step, each in value.items()}


def _contradiction(path: Path) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "two values have the same path, or one of them is inside the other",
        key="/".join(map(str, path))[:200],
        expected="a path of its own for each value",
    )
