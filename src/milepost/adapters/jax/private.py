"""Every private name of JAX that milepost uses, with its purpose. Tested with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jax._src import distributed, tree_util

PYTREE_TYPES: Final[Mapping[type, Any]] = tree_util._registry
"""Every class that is registered as a node of trees. No public function tells whether objects of a class are nodes."""

DISTRIBUTED: Final[Any] = distributed.global_state
"""The client, the number of this process, and how many there are. JAX's public functions initialize the devices to tell these."""
