"""Pauses the garbage collector in loops that only make objects."""

from __future__ import annotations

import gc
import threading
from collections.abc import Container
from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from typing import Final, Self

from milepost.forks import ForkableLock, register_at_fork

QUICK: Final = 64 << 20
"""Bytes that are read or written in so short a time that the garbage collector need not run meanwhile."""

_FEW: Final = 64
_NOTHING: Final = nullcontext()
_lock: Final = ForkableLock()
_inside: Final[dict[int, int]] = {}
"""The thread of each pause, by the identity of its object."""
_resume: Final[list[bool]] = [False]
"""Whether it was enabled before the first of them paused it."""


class collection_paused(ContextDecorator):  # noqa: N801 - it is used like a function
    """Keeps the garbage collector from running in a block, or in a function that it decorates.

    A walk over a large graph makes hundreds of thousands of objects and no garbage, and each collection visits all of
    them again. That takes a third of the time for 20,000 variables, and two thirds for 200,000.

    Ctrl-C may interrupt the methods too, at any instruction. So the pause ends at the latest with the object. The lock is free at once,
    since a traceback may keep the object.
    """

    def __enter__(self) -> Self:
        with _lock:
            if not _inside:
                _resume[0] = gc.isenabled()
            _inside[id(self)] = threading.get_ident()
            gc.disable()
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            if id(self) in _inside:
                if len(_inside) == 1 and _resume[0]:
                    gc.enable()
                del _inside[id(self)]  # last: if Ctrl-C comes before it, the end of the object does all of this again

    def end(self) -> None:
        """Ends the pause before the block ends. A second call does nothing."""
        self.__exit__()

    def __del__(self, inside: Container[int] = _inside) -> None:
        # When the interpreter ends, the names of the module may be gone.
        if id(self) in inside:
            self.__exit__()

    def _recreate_cm(self) -> Self:
        return type(self)()  # each call of a decorated function is a pause of its own


def paused_for(count: int) -> AbstractContextManager[object]:
    """Pauses the garbage collector in a block that makes so many objects that it is worth while."""
    return collection_paused() if count > _FEW else _NOTHING


def _resume_in_child() -> None:
    """Enables it in a forked child, which has none of the threads that would end their pauses."""
    if _inside:
        current_thread = threading.get_ident()
        for each in [each for each, thread in _inside.items() if thread != current_thread]:
            del _inside[each]
        if not _inside and _resume[0]:
            gc.enable()


register_at_fork(after_in_child=_resume_in_child)
