"""Which failed saves a run goes on through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from milepost.engine.arguments import is_whole_number, wrong
from milepost.errors import CheckpointNotFoundError, CoordinationError, MilepostError, StateFileError, StorageError


@dataclass(frozen=True, slots=True)
class Tolerate:
    """Lets a run go on through failed and hanging saves, for ``CheckpointManager(on_failure=...)``.

    A failed save then causes a warning and a line in the log, and ``save()`` returns None. If more saves fail in a row than ``saves``, or a
    save fails and the last good one is longer ago than ``seconds``, the manager raises a `StorageError` that lists the failures. A good save
    begins the count anew. If the last save of the run has failed, ``sync()`` and ``close()`` raise its error, and a program that calls neither
    ends with an exit status other than 0.

    What is tolerated are failures of the storage: a `StorageError`, a directory that is gone, a state file that cannot be understood, and
    another process that does not answer. Everything else is raised at once, such as an object that cannot be saved.

    Attributes:
        saves: How many saves in a row may fail; None for any number.
        seconds: For how long the last good save may be ago when a save fails; None for any time.
        hangs_after: Seconds after which a save that has written nothing meanwhile counts as failed. Then nobody waits for it, and until it
            ends all further saves are skipped and count as failed, too. It must be longer than the storage takes to sync a file. With several processes it is at least
            twice the ``process_timeout`` of the options.

    Raises:
        UnsupportedError: An argument has a type or value that is not accepted.

    Example:
        >>> import milepost, tempfile
        >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
        >>> tolerate = Tolerate(saves=3, seconds=3600)
        >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), 2, on_failure=tolerate)
        >>> path = manager.save(10)
        >>> manager.health.state, manager.health.last_good.step
        ('good', 10)
    """

    saves: int | None = 3
    seconds: float | None = 3600.0
    hangs_after: float = 30.0

    def __post_init__(self) -> None:
        if self.saves is not None and (not is_whole_number(self.saves) or self.saves < 1):
            raise wrong("saves", self.saves, "a whole number from 1 on, or None for any number")
        if self.seconds is not None and not _is_positive(self.seconds):
            raise wrong("seconds", self.seconds, "a number of seconds greater than 0, or None for any time")
        if not _is_positive(self.hangs_after):
            raise wrong("hangs_after", self.hangs_after, "a number of seconds greater than 0")


def policy_of(on_failure: Any) -> Tolerate | None:
    """The policy that an argument ``on_failure`` means; None raises every error.

    Raises:
        UnsupportedError: It is neither ``"raise"`` nor a `Tolerate`.
    """
    if isinstance(on_failure, Tolerate):
        return on_failure
    if on_failure != "raise":
        raise wrong("on_failure", on_failure, "'raise', or milepost.Tolerate(saves=3, seconds=3600)")
    return None


def is_tolerable(error: MilepostError) -> bool:
    """Whether an error of a save is one of the storage, and not one of the program.

    Example:
        >>> is_tolerable(StorageError("cannot write: No space left on device")), is_tolerable(MilepostError("wrong"))
        (True, False)
    """
    if isinstance(error, CoordinationError):
        return error.is_lost
    return isinstance(error, (StorageError, CheckpointNotFoundError, StateFileError))


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf
