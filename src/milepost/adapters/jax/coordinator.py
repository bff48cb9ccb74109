"""A coordinator on the key-value store by which the processes of `jax.distributed` met."""

from __future__ import annotations

import time
from typing import Any, Final

import jax

from milepost.adapters.coordinators import COORDINATORS
from milepost.adapters.jax.private import DISTRIBUTED
from milepost.coordination import Coordinator, StoreCoordinator

_SLICE: Final = 0.5
"""Seconds after which a wait looks whether the program was interrupted."""
_ABSENT: Final = ("NOT_FOUND", "DEADLINE_EXCEEDED")


class _JaxStore:
    """The store of JAX's coordination service."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def set(self, key: str, value: bytes) -> None:
        self._client.key_value_set_bytes(key, value, allow_overwrite=True)

    def get(self, key: str, timeout: float) -> bytes | None:
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            try:
                if left <= 0:
                    return bytes(self._client.key_value_try_get_bytes(key))
                return bytes(self._client.blocking_key_value_get_bytes(key, max(int(min(left, _SLICE) * 1000), 1)))
            except jax.errors.JaxRuntimeError as error:
                if not str(error).startswith(_ABSENT):
                    raise
                if left <= 0:
                    return None

    def delete(self, key: str) -> None:
        self._client.key_value_delete(key)


_made: tuple[Any, Coordinator] | None = None


def jax_coordinator() -> Coordinator | None:
    """The coordinator, or None if `jax.distributed` is not initialized or has one process.

    `jax.process_count` is not asked, because it would initialize the devices and block until all processes do the same.
    """
    global _made
    client, size = DISTRIBUTED.client, DISTRIBUTED.num_processes
    if client is None or size is None or size < 2:
        return None
    if _made is None or _made[0] is not client:
        _made = client, StoreCoordinator(_JaxStore(client), DISTRIBUTED.process_id, size, "jax.distributed")
    return _made[1]


COORDINATORS["jax"] = jax_coordinator
