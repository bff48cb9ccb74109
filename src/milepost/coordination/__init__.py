"""The protocol by which the processes of one program exchange messages, and its implementations that need no library.

The implementations on `torch.distributed`, `jax.distributed` and MPI are adapters (`milepost.adapters.coordinators`).
`milepost.distributed` defines the messages.
"""

from milepost.coordination.files import FileCoordinator
from milepost.coordination.interface import Coordinator
from milepost.coordination.store import KeyValueStore, StoreCoordinator

__all__ = ["Coordinator", "FileCoordinator", "KeyValueStore", "StoreCoordinator"]
