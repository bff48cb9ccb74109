"""The values that a step of a function yields, as JSON with all their bits."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from milepost.errors import ArgumentError
from milepost.graph.adapter import adapter_of
from milepost.tools.resumes.evidence import read_values
from milepost.tools.resumes.facts import SCALARS

Encoded = Sequence[Any]
"""A value as JSON: the kind, the element type, the shape, and the bytes in base 64."""


def encoded(values: Any, name: str = "") -> Iterator[tuple[str, Encoded]]:
    """The values of a step, by name.

    Args:
        values: Numbers, text, None and arrays, in dicts, lists and tuples.
        name: The name of all of them.

    Raises:
        ArgumentError: There is something else among them.

    Example:
        >>> [(name, value[1]) for name, value in encoded({"loss": 0.5, "norms": [np.float32(1), 2]})]
        [('loss', 'float'), ('norms[0]', 'float32'), ('norms[1]', 'int')]
    """
    if isinstance(values, Mapping):
        for key, each in values.items():
            yield from encoded(each, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(values, (list, tuple)):
        for number, each in enumerate(values):
            yield from encoded(each, f"{name}[{number}]")
    elif isinstance(values, SCALARS) and not isinstance(values, np.generic):
        text = values.hex() if isinstance(values, float) else repr(values)
        yield name, ("text", type(values).__name__, [], text)
    else:
        adapter = adapter_of(values)
        arrays = [] if adapter is None else read_values(adapter, values)
        if not arrays:
            raise ArgumentError(
                "a step yields a value that cannot be compared",
                key=name or None,
                expected="numbers, text, None and arrays, in dicts, lists and tuples",
                found=f"a {type(values).__module__}.{type(values).__qualname__}",
                remedy="yield its numbers or arrays",
            )
        for local, array in arrays:
            data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
            whole = name if len(arrays) == 1 else f"{name}.{local}"
            yield whole, ("array", str(array.dtype), list(array.shape), data)
