"""Every private name of JAX that milepost uses, each with what for. Tried with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jax._src import distributed, tree_util

PYTREE_TYPES: Final[Mapping[type, Any]] = tree_util._registry
"""Every class that is registered as a node of trees; nothing public says whether objects of a type are nodes."""

DISTRIBUTED: Final[Any] = distributed.global_state
"""Client, number and count of processes, which JAX's public functions tell only after initializing its devices."""
