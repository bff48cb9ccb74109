"""Turns: saves and restores of the same objects wait for each other, in the order in which they were asked for.

=========  =====================================
turn       waits for earlier turns of this kind
=========  =====================================
save       save, restore
restore    save, restore, look
look       restore
=========  =====================================

Only turns of other threads that concern the same objects count. Two turns concern the same objects if one object is reached from both
roots. A look is a report, an assertion or a drawing. A thread never waits for itself: what would have to is refused, as in a signal
handler, or in a method that a save or restore calls. A look goes on there, since it changes nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from milepost.errors import InProgressError
from milepost.forks import ForkableLock
from milepost.graph.contract.operation import Operation
from milepost.graph.traversal import walk
from milepost.threads import SLICE, WAIT

SAVE: Final = "save"
RESTORE: Final = "restore"
LOOK: Final = "look"
_EARLIER: Final = {SAVE: (SAVE, RESTORE), RESTORE: (SAVE, RESTORE, LOOK), LOOK: (RESTORE,)}
_turns: Final[list[Turn]] = []
"""The turns that were asked for and have not ended, in that order."""
_lock: Final = ForkableLock()


class Turn:
    """The turn of one save, restore or look: a block that begins when earlier turns have ended, and ends its own.

    Args:
        kind: `SAVE`, `RESTORE` or `LOOK`.
        what: What is done, as in "the save of runs/ckpt-3".
        view: Begins an operation at the root of the objects. None if the turn concerns all others of its list.
        wait: Seconds after which the wait ends in an error.
        turns: The list, in the order in which turns were asked for. It has the turns that have not ended.

    Raises:
        InProgressError: An earlier turn did not end in time, or this thread is in one.

    Example:
        >>> import milepost
        >>> checkpoint = milepost.Checkpoint(step=3)
        >>> with Turn(SAVE, "a save", lambda: Operation(checkpoint)) as turn:
        ...     turn.has_ended
        False
    """

    def __init__(
        self,
        kind: str,
        what: str,
        view: Callable[[], Operation] | None,
        wait: float = WAIT,
        turns: list[Turn] = _turns,
    ) -> None:
        self.kind = kind
        self.what = what
        self.has_ended = False
        self._view = view
        self._concerns_all = view is None
        self._wait = wait
        self._turns = turns
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._reached: set[int] | None = None
        self._running = threading.Lock()

    def __enter__(self) -> Turn:
        self._running.acquire()
        try:
            with _lock:
                earlier = [
                    turn for turn in self._turns if turn._process == self._process and turn.kind in _EARLIER[self.kind]
                ]
                self._turns.append(self)
            deadline = time.monotonic() + self._wait
            for turn in earlier:
                if turn._thread == self._thread and self.kind == LOOK:
                    continue
                if not turn.has_ended and self._concerns(turn):
                    self._wait_for(turn, deadline)
        except BaseException:
            self.end()
            raise
        return self

    @property
    def __exit__(self) -> _TurnEnd:
        return _TurnEnd(self)

    def end(self) -> None:
        """Ends the turn, before the block ends. A second call does nothing."""
        self.has_ended = True
        self._view = None  # so that nothing keeps the objects
        with suppress(ValueError):
            self._turns.remove(self)
        with suppress(RuntimeError):  # it has ended before
            self._running.release()

    def is_own(self) -> bool:
        """Whether this thread is in the turn."""
        return self._thread == threading.get_ident() and self._process == os.getpid() and not self.has_ended

    def _wait_for(self, earlier: Turn, deadline: float) -> None:
        if earlier._thread == self._thread:
            raise InProgressError(
                f"{self.what} was begun inside {earlier.what}, which concerns the same objects; nothing was saved or restored",
                remedy="begin it when the other has ended: a signal handler or a callback can set a flag, which the program looks at later",
            )
        while not earlier.has_ended:
            if time.monotonic() >= deadline:
                # a turn of one Checkpoint names no path, but inside it that thread has one that does
                inside = (each.what for each in list(_turns) if each._thread == earlier._thread)
                running = next(inside, earlier.what)
                raise InProgressError(
                    f"{self.what} has waited {self._wait:g} seconds for {running}, which runs in another thread and concerns the same "
                    "objects; nothing was saved or restored",
                    remedy="look what holds the other thread up; if it is slow, pass a larger CheckpointOptions(process_timeout=seconds)",
                )
            if earlier._running.acquire(timeout=SLICE):
                with suppress(RuntimeError):  # the turn has been ended a second time, which released it meanwhile
                    earlier._running.release()

    def _concerns(self, other: Turn) -> bool:
        """Whether an object is reached from both roots."""
        if self._concerns_all:
            return True
        objects = self._objects()
        try:
            return not objects.isdisjoint(other._objects())
        except Exception:  # the other thread may be changing them, which a restore does
            return True

    def _objects(self) -> set[int]:
        """Identities of the objects that this turn concerns. They are found when another turn asks for the first time."""
        view = self._view
        if self._reached is None and view is not None:
            self._reached = set(map(id, walk(view(), slots=False).objects))
        return self._reached or set()


def is_saving_anything() -> bool:
    """Whether a save is in progress in this process, on any thread. It waits for nothing, so a signal handler may ask."""
    return any(turn.kind == SAVE and turn._process == os.getpid() and not turn.has_ended for turn in list(_turns))


class _TurnEnd:
    """Ends a turn with its block. Ctrl-C may come where Python does not call what ends a block; then the turn ends with this object."""

    _turn: Turn | None = None  # if Ctrl-C comes before it is set, the turn has not begun

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __call__(self, *_: object) -> None:
        self.__del__()

    def __del__(self) -> None:
        if self._turn is not None:
            self._turn.end()
