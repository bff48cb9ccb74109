"""The processes that `jax.distributed.initialize` has connected."""

from __future__ import annotations

from typing import Any

from milepost.adapters.jax.private import DISTRIBUTED
from milepost.adapters.processes import GROUPS, ProcessGroup


class _Counters:
    """The store of JAX's coordination service."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def add(self, key: str, amount: int) -> int:
        return int(self._client.key_value_increment(key, amount))


def jax_process_group() -> ProcessGroup | None:
    """The group, or None if it is not initialized or has one process.

    `jax.process_count` is not asked, because it would initialize the devices and block until all processes do the same.
    """
    client, size = DISTRIBUTED.client, DISTRIBUTED.num_processes
    if client is None or size is None or size < 2:
        return None
    return ProcessGroup("jax.distributed", DISTRIBUTED.process_id, size, _Counters(client), client)


GROUPS["jax"] = jax_process_group
