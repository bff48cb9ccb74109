"""The processes of a training run that `torch.distributed` or `jax.distributed` has connected.

No library is imported and no device is initialized to find out. Processes communicate through the key-value store with which the
library connected them. They use no collective operation, because that would block until all processes take part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from milepost.graph.frameworks import import_adapters, registry


class Counters(Protocol):
    """Counters that all processes of a group share."""

    def add(self, key: str, amount: int) -> int:
        """Adds to the counter of this name, which is 0 at first, atomically. Returns the sum."""
        ...


class ProcessGroup(NamedTuple):
    """A group of processes that run one program.

    Attributes:
        library: The package that connects them, such as ``torch.distributed``.
        rank: The number of this process, from 0.
        size: How many processes there are.
        counters: The counters that they share, or None if there are none.
        identity: An object that is a different one after the processes were connected again.
    """

    library: str
    rank: int
    size: int
    counters: Counters | None
    identity: Any


GROUPS: Final[dict[str, Callable[[], ProcessGroup | None]]] = registry({})
"""For each framework, the function that returns the group it has connected. Adapters add theirs when they are imported."""


def process_group() -> ProcessGroup | None:
    """The group that this process belongs to, or None if no imported framework has connected it to others.

    Raises:
        AdapterError: The adapter of an imported framework cannot be imported.
    """
    import_adapters()
    groups = (GROUPS[framework]() for framework in ("torch", "jax") if framework in GROUPS)
    return next((group for group in groups if group is not None), None)
