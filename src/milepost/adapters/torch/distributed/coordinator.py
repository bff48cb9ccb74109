"""A coordinator on the key-value store by which the processes of `torch.distributed` met."""

from __future__ import annotations

import secrets
from typing import Any

import torch

from milepost.adapters.coordinators import COORDINATORS
from milepost.adapters.torch.private import default_store
from milepost.coordination import Coordinator, StoreCoordinator
from milepost.coordination.polling import poll

_SHORTEST, _LONGEST = 0.001, 0.1
"""Seconds between two looks for a message: few at first, then more."""
_NOTHING = secrets.token_hex()
"""What no message is."""


class _TorchStore:
    """A store of `torch.distributed`.

    Args:
        store: The store. A copy of it has a connection of its own, so that nothing waits for a wait here.
    """

    def __init__(self, store: Any) -> None:
        self._store = store.clone() if hasattr(store, "clone") else store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str, timeout: float) -> bytes | None:
        return poll(lambda: self._now(key), timeout, _SHORTEST, _LONGEST)

    def _now(self, key: str) -> bytes | None:
        """What is under a key now.

        PyTorch's own `get` waits half an hour where there is nothing, also if there was something just before. Its `wait` writes a
        warning to the standard error stream whenever its time has passed. A comparison with what is no message sets nothing, and
        returns the value, or what it was compared with.
        """
        value = bytes(self._store.compare_set(key, _NOTHING, _NOTHING))
        return None if value == _NOTHING.encode() else value

    def delete(self, key: str) -> None:
        self._store.delete_key(key)


_made: tuple[Any, Coordinator] | None = None


def torch_coordinator() -> Coordinator | None:
    """The coordinator of the default group, if it is initialized, has a store and more than one process."""
    global _made
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return None
    store: Any = default_store() if default_store is not None else None
    if store is None:
        return None
    if _made is None or _made[0] is not store:
        rank, size = distributed.get_rank(), distributed.get_world_size()
        _made = store, StoreCoordinator(_TorchStore(store), rank, size, "torch.distributed")
    return _made[1]


COORDINATORS["torch"] = torch_coordinator
