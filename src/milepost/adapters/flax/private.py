"""Every private name of Flax that milepost uses, each with what for. Tried with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "flax.nnx.Pytree": {
        "_pytree__is_pytree": "whether attributes are marked as data at all",
        "_pytree__nodes": "which attributes are data, numbers among them; nothing public says it without flattening",
    },
    "flax.nnx.Variable": {
        "_can_update": "whether the variable may be changed where it is being traced",
    },
}
"""Private attributes of objects, by class and name, each with what for."""
