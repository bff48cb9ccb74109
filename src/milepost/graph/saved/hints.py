"""What a restore needs besides the values of an object to make it again, in a field of the object graph.

::

    hints := JSON object: name -> integer | boolean | text | list of integers | list of booleans

For PyTorch: ``{"strides": [1, 3]}`` for a tensor that is not contiguous, ``{"gradient": [true, false]}`` for one in the state of an
optimizer that is a parameter, ``{"plain": true}`` for one in the state of a DTensor parameter that no mesh divides. For NumPy:
``{"dtype": "<U3"}``, ``{"fortran": true}``. ``{"names": true, "version": 2, "lazy": "weight\\nbias", "unlisted": "twin", "removed": "0.bias"}`` is explained in `milepost.graph.saved.all_names`.
``{"state": true}`` is for an object whose values are plain state (`milepost.plain_state`). No hint is a tensor of the checkpoint, so nothing lists one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from milepost.coding.json_data import parse_object
from milepost.errors import CorruptCheckpointError
from milepost.graph.contract.values import Array

_LONGEST: Final = 1 << 16
"""The most characters of the hints of one object. Strides of 64 dimensions take 1,300."""


def encode(hints: Mapping[str, Array]) -> str:
    """Hints as text. Empty if there are none.

    Args:
        hints: Integers, booleans and texts by name, as arrays with at most one dimension.

    Example:
        >>> encode({"strides": np.array([1, 3])})
        '{"strides":[1,3]}'
    """
    return json.dumps({name: array.tolist() for name, array in hints.items()}, separators=(",", ":")) if hints else ""


def decode(text: str) -> dict[str, Array]:
    """The hints that `encode` has written.

    Raises:
        CorruptCheckpointError: The text is not of this form.
    """
    if not text:
        return {}
    if len(text) > _LONGEST:
        raise _malformed(f"{len(text)} characters")
    return {name: _array(value) for name, value in parse_object(text.encode(), "the hints of an object").items()}


def _array(value: Any) -> Array:
    members = value if isinstance(value, list) else [value]
    for kind, dtype in ((bool, np.bool_), (int, np.int64), (str, np.str_)):
        if all(type(each) is kind for each in members):
            try:
                return np.array(value, dtype)
            except OverflowError:
                break
    raise _malformed(f"{value!r:.80}")


def _malformed(found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "the hints of an object are malformed",
        expected="integers, booleans and texts, or lists of them",
        found=found,
        remedy="restore another checkpoint",
    )
