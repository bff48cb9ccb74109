"""How the processes of one program exchange messages: the protocol, and what implements it without a library.

The implementations on `torch.distributed`, `jax.distributed` and MPI are adapters (`milepost.adapters.coordinators`). What is
said with the messages is in `milepost.engine.together`.
"""

from milepost.coordination.files import FileCoordinator
from milepost.coordination.interface import Coordinator
from milepost.coordination.store import KeyValueStore, StoreCoordinator

__all__ = ["Coordinator", "FileCoordinator", "KeyValueStore", "StoreCoordinator"]
