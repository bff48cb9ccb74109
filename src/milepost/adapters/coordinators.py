"""The processes of a program that a library has connected.

No library is imported and no device is initialized to find out. Processes exchange messages through the key-value store with which
the library connected them. They use no collective operation, because that could get in the way of those of the training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milepost.coordination import Coordinator
from milepost.graph.frameworks import import_adapters, registry

COORDINATORS: Final[dict[str, Callable[[], Coordinator | None]]] = registry({})
"""For each library, the function that returns the coordinator of what it has connected. Adapters add theirs when they are imported.

It returns the same object until the processes are connected anew.
"""


def found_coordinator() -> Coordinator | None:
    """The coordinator of this process, or None if no imported library has connected it to others.

    Raises:
        AdapterError: The adapter of an imported library cannot be imported.
    """
    import_adapters()
    found = (COORDINATORS[library]() for library in ("torch", "jax", "tensorflow", "mpi4py") if library in COORDINATORS)
    return next((each for each in found if each is not None), None)
