"""The other processes of a training run, as `torch.distributed` or `jax.distributed` knows them.

Nothing is imported and no device is touched to find out. What processes tell each other goes through the key-value store by
which they met, never through a collective operation, which would wait for processes that do not take part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from milepost.graph.frameworks import import_adapters, registry


class Counters(Protocol):
    """A store that all processes of a group share."""

    def add(self, key: str, amount: int) -> int:
        """Adds to the number under a key, at first 0, in one step; returns the sum."""
        ...


class ProcessGroup(NamedTuple):
    """A group of processes that run one program.

    Attributes:
        library: The package that connects them, as ``torch.distributed``.
        rank: The number of this process, from 0.
        size: How many processes there are.
        counters: The store that they share, or None if there is none.
        identity: An object that is another one when the processes have been connected anew.
    """

    library: str
    rank: int
    size: int
    counters: Counters | None
    identity: Any


GROUPS: Final[dict[str, Callable[[], ProcessGroup | None]]] = registry({})
"""By framework: what returns the group that it has connected. The adapters add themselves when they are imported."""


def process_group() -> ProcessGroup | None:
    """The group that this process belongs to, or None if it runs alone, or in a way that cannot be known.

    Raises:
        AdapterError: The adapter of an imported framework cannot be imported.
    """
    import_adapters()
    groups = (GROUPS[framework]() for framework in ("torch", "jax") if framework in GROUPS)
    return next((group for group in groups if group is not None), None)
