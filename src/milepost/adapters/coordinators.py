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

_BEFORE_OTHERS: Final[tuple[str, ...]] = ("torch", "jax", "tensorflow", "mpi4py")
"""If several libraries have connected the processes, the first of these is used."""


def found_coordinator() -> Coordinator | None:
    """The coordinator of this process, or None if no imported library has connected it to others.

    Raises:
        AdapterError: The adapter of an imported library cannot be imported.
    """
    import_adapters()
    libraries = [each for each in _BEFORE_OTHERS if each in COORDINATORS]
    libraries += sorted(COORDINATORS.keys() - set(libraries))  # the same order on all processes
    coordinators = (COORDINATORS[library]() for library in libraries)
    return next((each for each in coordinators if each is not None), None)
