"""One save at a time: on the calling thread, or on a background thread whose errors are raised or printed later."""

from __future__ import annotations

import atexit
import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from milepost.errors import AfterCommitError, StorageError, warn
from milepost.forks import ForkableLock


class BackgroundWriter:
    """Runs one job at a time on a thread. The process waits for the thread before it ends.

    The interpreter waits for threads before it calls the functions that `atexit` has registered. If one of these submits a job, milepost
    waits for it, or runs it on the calling thread if milepost's own function has been called already.

    A forked child has none of its parent's jobs: no save is in progress in it, and none has failed.

    Example:
        >>> writer = BackgroundWriter()
        >>> with writer.exclusive():
        ...     writer.submit(lambda: None)
        >>> writer.wait()
    """

    def __init__(self) -> None:
        self._turn = ForkableLock()
        self._job: _Job | None = None
        self._failed: list[_Job] = []
        """Jobs that failed, and whose error has not been raised yet."""
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        weakref.finalize(self, _tell, self._failed)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Waits for other threads and for the running job, raises the job's error, and then keeps other threads from
        saving.

        The running job may enter too, because it may call back into the program.
        """
        if threading.current_thread() in self._threads:
            self.wait()
            yield
            return
        with self._turn:
            if self._job is not None:
                self.wait()
            yield

    @property
    def is_running(self) -> bool:
        """Whether a job is running in this process."""
        job = self._job
        return job is not None and job.process == os.getpid() and job.thread.is_alive()

    def submit(self, work: Callable[[], object]) -> None:
        """Starts a job when the previous one has ended. If the previous job failed, its error is raised instead.

        Raises:
            StorageError: The system cannot start a thread. The job does not run; the next one can be submitted.
        """
        self.wait()
        before = self._job
        is_nested = threading.current_thread() in self._threads
        if _ends_in[0] == os.getpid():
            work()
            return
        self._job = _Job(work, self._failed, before if is_nested else None)
        self._threads.add(self._job.thread)
        _submitted.add(self._job)
        try:
            self._job.start()
        except BaseException:
            if self._job.give_up():
                self._job = before
            raise

    def wait(self) -> None:
        """Waits for the running job, and raises its error.

        An error is raised once.
        """
        done = None
        # A job may submit the next one from a callback.
        while (job := self._job) is not done and job is not None:
            if job.process != os.getpid():
                return
            for each in job.to_wait_for():
                each.thread.join()
                each.raise_error()
            done = job

    # A copy of a checkpoint has no running job.

    def __deepcopy__(self, memo: object) -> BackgroundWriter:
        return BackgroundWriter()

    def __reduce__(self) -> tuple[type[BackgroundWriter], tuple[()]]:
        return BackgroundWriter, ()


class _Job:
    def __init__(self, work: Callable[[], object], failed: list[_Job], before: _Job | None) -> None:
        self.process = os.getpid()
        self.thread = threading.Thread(target=self._run, name="milepost-save", daemon=False)
        self.error: BaseException | None = None
        self.untold = failed
        """The jobs of the same writer that failed, and whose error has not been raised yet."""
        self._work: Callable[[], object] | None = work
        self._before = before
        """The job that submitted this one. It may still be running."""
        self._lock = threading.Lock()
        self._state = "new"

    def start(self) -> None:
        try:
            self.thread.start()
        except (RuntimeError, MemoryError) as error:
            raise StorageError(
                f"an asynchronous save cannot start its thread: {error}",
                errno=errno.EAGAIN,
                remedy="save without enable_async, or free memory or threads and save again; nothing was written",
            ) from error

    def give_up(self) -> bool:
        """Keeps the job from running, unless it has already begun. An interrupt may come too late to prevent it."""
        with self._lock:
            if self._state == "new":
                self._state, self._work = "given up", None
            return self._state == "given up"

    def to_wait_for(self) -> list[_Job]:
        """This job and those that submitted it, oldest first. If one of them is the caller, only those after it."""
        jobs: list[_Job] = []
        job: _Job | None = self
        while job is not None and job.thread is not threading.current_thread():
            jobs.append(job)
            job = job._before
        return jobs[::-1]

    def raise_error(self) -> None:
        """Raises the error of the job, in the first call only."""
        try:
            self.untold.remove(self)
        except ValueError:
            return
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        with self._lock:
            if self._state == "given up":
                return
            self._state = "begun"
        work, self._work = self._work, None
        try:
            assert work is not None
            work()
        except BaseException as error:
            # The next call raises it again; if there is none, it is printed.
            self.error = error
            self.untold.append(self)


_submitted: Final[weakref.WeakSet[_Job]] = weakref.WeakSet()
"""The jobs of this process and its parents, of which some have ended."""
_ends_in: Final[list[int | None]] = [None]
"""The process that is about to end, and waits for no more jobs."""


def _wait_at_exit() -> None:
    """Waits for the jobs that were submitted while the process ends, and prints their errors."""
    while running := [job for job in list(_submitted) if job.process == os.getpid() and job.thread.is_alive()]:
        for job in running:
            job.thread.join()
    _ends_in[0] = os.getpid()
    for job in list(_submitted):
        _tell(job.untold)


atexit.register(_wait_at_exit)


def _tell(failed: list[_Job]) -> None:
    """Prints the errors that no call has raised, when the writer is gone or the process ends."""
    while failed:
        job = failed.pop(0)
        if job.process == os.getpid():
            outcome = "" if isinstance(job.error, AfterCommitError) else ", and nothing was saved"
            warn(f"an asynchronous save failed{outcome}: {job.error}")
