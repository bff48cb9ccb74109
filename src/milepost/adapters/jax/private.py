"""Every private name of JAX that milepost uses, with its purpose. Tested with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jax._src import distributed, tree_util
from jax._src.interpreters import pxla
from jax._src.lib import xla_client

PYTREE_TYPES: Final[Mapping[type, Any]] = tree_util._registry
"""Every class that is registered as a node of trees. No public function tells whether objects of a class are nodes."""

DISTRIBUTED: Final[Any] = distributed.global_state
"""The client, the number of this process, and how many there are. JAX's public functions initialize the devices to tell these."""

PUT: Final[Any] = getattr(xla_client, "batched_device_put", pxla.batched_device_put)
"""Makes an array of given elements with a given sharding, weakly typed and committed as asked. Public functions make no uncommitted array
on another device than the default, nor a weakly typed one of any shape; and `jax.numpy.asarray` takes some five times as long. The
first of the two is the one that the second calls, after it has looked for elements that are arrays of JAX."""
