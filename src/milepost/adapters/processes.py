"""The other processes of a training run, as `torch.distributed` or `jax.distributed` knows them.

Nothing is imported and no device is touched to find out. What processes tell each other goes through the key-value store by
which they met, never through a collective operation, which would wait for processes that do not take part.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from milepost.graph.frameworks import import_adapters, imported


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


def process_group() -> ProcessGroup | None:
    """The group that this process belongs to, or None if it runs alone, or in a way that cannot be known.

    Raises:
        AdapterError: The adapter of an imported framework cannot be imported.
    """
    import_adapters()
    if imported("torch"):
        from milepost.adapters.torch.processes import torch_process_group

        group = torch_process_group()
        if group is not None:
            return group
    if imported("jax"):
        from milepost.adapters.jax.processes import jax_process_group

        return jax_process_group()
    return None
