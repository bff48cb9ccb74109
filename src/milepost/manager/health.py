"""What is known of the saves of one manager: the last good one, and what has failed since."""

from __future__ import annotations

import copy
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from milepost.errors import MilepostError, StorageError
from milepost.forks import ForkableLock
from milepost.graph.description import counted, moment

HealthState = Literal["idle", "saving", "good", "failing", "hanging"]
"""How the saves of a manager go: none yet, one in progress, the last one good or failed, one in progress that writes nothing any more."""
_MOST_KEPT: Final = 100
"""Of more failures in a row, the last ones are kept."""


@dataclass(frozen=True, slots=True)
class GoodSave:
    """A checkpoint that is saved and listed.

    Attributes:
        path: Its path.
        step: Its number.
        time: When it was saved, in UTC.
    """

    path: str
    step: int
    time: datetime


@dataclass(frozen=True, slots=True)
class FailedSave:
    """A save that has failed.

    Attributes:
        path: The path of the checkpoint.
        step: Its number.
        time: When it failed, in UTC.
        error: Why, without a traceback.
    """

    path: str
    step: int
    time: datetime
    error: MilepostError

    def __str__(self) -> str:
        return f"step {self.step} at {moment(self.time.timestamp())}: {self.error.problem}"


@dataclass(frozen=True, slots=True)
class Health:
    """How the saves of a manager go. Printing it gives a line for the last good save and one for each failure since.

    Attributes:
        state: ``"idle"`` before the first save of this manager, ``"saving"`` while one is in progress, ``"good"`` or ``"failing"`` as the last one
            has ended, and ``"hanging"`` if one is in progress that has written nothing for a long time (`milepost.Tolerate`).
        last_good: The last good save. Before the first save of this manager, it is the newest checkpoint that is listed, or None.
        failures: The saves that have failed since, oldest first; of more than 100, the last ones.
        consecutive: How many have failed since.
    """

    state: HealthState
    last_good: GoodSave | None
    failures: tuple[FailedSave, ...]
    consecutive: int

    def __str__(self) -> str:
        good = "none"
        if self.last_good is not None:
            good = f"{os.path.basename(self.last_good.path)} at {moment(self.last_good.time.timestamp())}"
        failed = f", {counted(self.consecutive, 'failed save')} since" if self.consecutive else ""
        return "\n".join([f"{self.state}: last good save {good}{failed}", *(f"  {each}" for each in self.failures)])


class SaveRecord:
    """Records how the saves of one manager end, from any thread.

    Attributes:
        last_good: The last good save, or None.
        consecutive: How many have failed since.
        untold: The error of the last save, if it has failed and the program did not get it.
        ends_with_error: Whether the process ends with an error if there is one (`milepost.ending`).

    Example:
        >>> from milepost.errors import StorageError
        >>> record = SaveRecord()
        >>> failure = record.failed("run/ckpt-7", 7, StorageError("cannot write"))
        >>> record.consecutive, record.failures[0].error.problem
        (1, 'cannot write')
        >>> record.good("run/ckpt-8", 8)
        >>> record.consecutive, record.last_good.step
        (0, 8)
    """

    def __init__(self) -> None:
        self._lock = ForkableLock()
        self._since = time.monotonic()
        self._failures: deque[FailedSave] = deque(maxlen=_MOST_KEPT)
        self.last_good: GoodSave | None = None
        self.consecutive = 0
        self.untold: StorageError | None = None
        self.ends_with_error = False
        self.hangs: Callable[[], bool] = lambda: False
        """Whether the save that was begun last hangs."""

    @property
    def failures(self) -> tuple[FailedSave, ...]:
        """The saves that have failed since the last good one, oldest first."""
        with self._lock:
            return tuple(self._failures)

    @property
    def seconds_since_good(self) -> float:
        """How long ago the last good save ended or, without one, this was made."""
        return time.monotonic() - self._since

    def good(self, path: str, step: int) -> None:
        """Records a good save."""
        with self._lock:
            self.last_good = GoodSave(path, step, datetime.now(UTC))
            self._since = time.monotonic()
            self._failures.clear()
            self.consecutive = 0
            self.untold = None

    def failed(self, path: str, step: int, error: MilepostError, before: FailedSave | None = None) -> FailedSave:
        """Records a failed save.

        Args:
            path: The path of its checkpoint.
            step: Its number.
            error: Its error.
            before: What this has returned for the same save before: that it hangs.
        """
        failure = FailedSave(path, step, datetime.now(UTC), copy.copy(error))
        with self._lock:
            if before is not None and before in self._failures:
                self._failures[self._failures.index(before)] = failure
            else:
                self._failures.append(failure)
                self.consecutive += 1
        return failure
