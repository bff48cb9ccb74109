"""The processes of a program that a library has connected.

No library is imported and no device is initialized to find out. Processes exchange messages through the key-value store with which
the library connected them. They use no collective operation, because that could get in the way of those of the training.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from milepost.coordination import Coordinator
from milepost.graph.frameworks import import_adapters, imported, registry, require, usable

COORDINATORS: Final[dict[str, Callable[[], Coordinator | None]]] = registry({})
"""For each library, the function that returns the coordinator of what it has connected. Adapters add theirs when they are imported.

It returns the same object until the processes are connected anew.
"""

_BEFORE_OTHERS: Final[tuple[str, ...]] = ("torch", "jax", "tensorflow", "mpi4py")
"""If several libraries have connected the processes, the first of these is used."""


def _mpi_connects(_: Any) -> bool:
    mpi: Any = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.Get_size() > 1


_CONNECT: Final[Mapping[str, Callable[[Any], bool]]] = {
    "torch": lambda torch: torch.distributed.is_available() and torch.distributed.is_initialized(),
    "jax": lambda jax: jax.distributed.is_initialized(),
    "tensorflow": lambda _: "TF_CONFIG" in os.environ,
    "mpi4py": _mpi_connects,
}
"""Whether a library has connected the processes, as public functions of any version of it tell."""


def found_coordinator() -> Coordinator | None:
    """The coordinator of this process, or None if no imported library has connected it to others.

    Raises:
        AdapterError: A library that milepost cannot use in the installed version has connected the processes, or does not tell.
    """
    import_adapters()
    for library in _CONNECT:
        if _is_refused(library) and _connects(library):
            require(library)
    libraries = [each for each in _BEFORE_OTHERS if each in COORDINATORS]
    libraries += sorted(COORDINATORS.keys() - set(libraries))  # the same order on all processes
    coordinators = (COORDINATORS[library]() for library in libraries)
    return next((each for each in coordinators if each is not None), None)


def _is_refused(library: str) -> bool:
    return imported(library) is not None and usable(library) is None


def _connects(library: str) -> bool:
    try:
        return _CONNECT[library](imported(library))
    except Exception:  # a version without such a function
        return True
