"""One save at a time: on the calling thread, or on a background thread whose errors are raised or printed later."""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from milepost.ending import before_end, fail, is_last_call, say
from milepost.engine.turns import SAVE, Turn
from milepost.errors import AfterCommitError, StorageError, printable, warn
from milepost.threads import WAIT, ThreadCall

_REMINDED: Final = 60.0
"""Seconds after which a process that waits for a save before it ends says so, again and again."""

Hanging = Callable[[float], StorageError | None]
"""A function that returns the error for a job that hangs, and None as long as the job does not. It is given the time from which on nothing has
happened, as `time.monotonic` gives it; what happened before does not count."""


class BackgroundWriter:
    """Runs one job at a time on a thread. The process waits for the thread before it ends, and says so if that takes long.

    If a job has failed and no call has raised its error, the process ends with an exit status other than 0 (`milepost.ending`).

    A job has ended when it says so. Ctrl-C ends the wait for a job, and changes nothing else: the job goes on, and whoever comes next
    waits for it.

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
        self._turns: list[Turn] = []
        self._jobs: list[_Job] = []
        """The jobs that have not ended, and those that failed and whose error has not been raised yet, in the order of their submission."""
        weakref.finalize(self, _tell, self._jobs)

    @contextmanager
    def exclusive(self, wait: float = WAIT) -> Iterator[None]:
        """Waits for other threads, in the order in which they came, and for the running job, raises the job's error, and then
        keeps other threads from saving.

        A thread that is in such a block may enter another one. The running job may enter too, because it may call back into the program.

        Args:
            wait: Seconds after which the wait for other threads ends in an error.

        Raises:
            InProgressError: Another thread did not end in time.
        """
        if any(job.is_own_thread() for job in list(self._jobs)) or any(turn.is_own() for turn in list(self._turns)):
            self.wait()
            yield
            return
        with Turn(SAVE, "a save or restore through a Checkpoint", None, wait, self._turns):
            self.wait()
            yield

    @property
    def is_running(self) -> bool:
        """Whether a job is running in this process."""
        return any(job.is_running() for job in list(self._jobs))

    def submit(self, work: Callable[[], object], hanging: Hanging | None = None) -> None:
        """Starts a job when the previous one has ended. If the previous job failed, its error is raised instead.

        Args:
            work: The job.
            hanging: Returns an error if the job hangs. Then whoever waits for the job gets this error, and the process may end before it.

        Raises:
            StorageError: The system cannot start a thread. The job does not run; the next one can be submitted.
        """
        self.wait()
        if is_last_call():
            work()
            return
        job = _Job(work, self, self._jobs, hanging)
        try:
            _submitted.add(job)
            self._jobs.append(job)
            job.call.start()
        except BaseException as error:
            if job.call.give_up():  # if an interrupt comes so late that the job has begun, it goes on
                _removed(job, self._jobs)
            if isinstance(error, (RuntimeError, MemoryError)):
                raise _no_thread(error) from error
            raise

    def wait(self, since: float = 0.0) -> None:
        """Waits for the running job, and raises its error, or the error that it hangs.

        All who wait for a job get its error. If nobody has waited for it, the first who asks gets it.

        Args:
            since: The time from which on a job must do nothing to hang, as `time.monotonic` gives it.
        """
        # A job may submit the next one from a callback.
        while (job := self._next_job()) is not None:
            has_waited = job.call.wait(partial(job.goes_on, since))
            if not job.call.has_ended:
                if (hangs := job.hangs(since)) is not None:
                    raise hangs
            elif job.error is None:
                _removed(job, self._jobs)  # one that did not take place may be there still
            elif has_waited or job in self._jobs:
                try:
                    raise job.error
                except BaseException as raised:
                    if raised is job.error:  # not Ctrl-C instead: then the next call raises it
                        _removed(job, self._jobs)
                    raise
                finally:
                    del job  # the traceback of its error has this frame: a cycle

    def _next_job(self) -> _Job | None:
        """The first job that the caller waits for. A job that calls back waits only for those that it has submitted."""
        jobs = [job for job in list(self._jobs) if job.is_of_this_process()]
        for number, job in enumerate(jobs):
            if job.is_own_thread():
                jobs = jobs[number + 1 :]
                break
        return jobs[0] if jobs else None

    # A copy of a checkpoint has no running job.

    def __deepcopy__(self, memo: object) -> BackgroundWriter:
        return BackgroundWriter()

    def __reduce__(self) -> tuple[type[BackgroundWriter], tuple[()]]:
        return BackgroundWriter, ()


class _Job:
    """One job.

    Args:
        work: What to do.
        writer: The writer. The job does not keep it alive.
        jobs: The jobs of the writer.
        hanging: Returns an error if the job hangs; None if it is waited for without a limit.

    Attributes:
        call: The call of ``work`` on a thread.
        error: Its error.
        jobs: As given.
    """

    def __init__(
        self, work: Callable[[], object], writer: BackgroundWriter, jobs: list[_Job], hanging: Hanging | None
    ) -> None:
        self.call = ThreadCall(self._run, "milepost-save", daemon=hanging is not None)
        self._hanging = hanging
        self.error: BaseException | None = None
        self.jobs = jobs
        self._process = os.getpid()
        self._work: Callable[[], object] | None = work
        self._writer = weakref.ref(writer)

    def is_of_this_process(self) -> bool:
        return self._process == os.getpid()

    def is_running(self) -> bool:
        return self.is_of_this_process() and not self.call.has_ended

    def hangs(self, since: float) -> StorageError | None:
        """The error for a job that hangs; None if it does not, or has ended. The argument is that of `Hanging`."""
        return None if self._hanging is None or self.call.has_ended else self._hanging(since)

    def goes_on(self, since: float) -> bool:
        """Whether to wait for it further."""
        return self.hangs(since) is None

    def is_own_thread(self) -> bool:
        """Whether the job calls this."""
        return self.call.thread == threading.get_ident() and self.is_running()

    def writer_is_gone(self) -> bool:
        return self._writer() is None

    def _run(self) -> None:
        work, self._work = self._work, None
        try:
            assert work is not None
            work()
        except BaseException as error:
            # The next call raises it again; if there is none, it is printed.
            self.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            if self.writer_is_gone():
                _tell(self.jobs)
        else:
            _removed(self, self.jobs)


def _removed(job: _Job, jobs: list[_Job]) -> bool:
    """Removes a job. Returns False if another thread has done so before."""
    try:
        jobs.remove(job)
    except ValueError:
        return False
    return True


def _no_thread(error: BaseException) -> StorageError:
    return StorageError(
        f"an asynchronous save cannot start its thread: {error}",
        errno=errno.EAGAIN,
        remedy="save without enable_async, or free memory or threads and save again; nothing was written",
    )


class _Reminder:
    """Says again and again that a process that ends waits for a job.

    Attributes:
        began: When it has begun to wait.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._due = self.began + _REMINDED

    def goes_on(self, job: _Job) -> bool:
        """Whether to wait for a job further."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _REMINDED
            say(
                f"this process cannot end yet: it has waited {now - self.began:.0f} seconds for an asynchronous save; "
                "check whether the storage answers, or end the process with a signal, which leaves the earlier checkpoints as they are"
            )
        return job.goes_on(self.began)


def _wait_at_end() -> None:
    """Waits for the jobs of this process that do not hang, and prints their errors."""
    reminder = _Reminder()
    since = reminder.began
    while running := [job for job in list(_submitted) if job.is_running() and job.goes_on(since)]:
        for job in running:
            job.call.wait(partial(reminder.goes_on, job))
    for job in list(_submitted):
        hangs = job.hangs(since) if job.is_of_this_process() else None
        if hangs is not None:
            fail(printable(str(hangs)))
            _submitted.discard(job)
    for job in list(_submitted):
        _tell(job.jobs)


_submitted: Final[weakref.WeakSet[_Job]] = weakref.WeakSet()
"""The jobs of this process and its parents, of which some have ended."""
before_end(_wait_at_end)


def _tell(jobs: list[_Job]) -> None:
    """Tells the errors that no call has raised, when the writer is gone or the process ends. The process then ends with an error."""
    for job in list(jobs):
        if job.error is not None and _removed(job, jobs) and job.is_of_this_process():
            outcome = "" if isinstance(job.error, AfterCommitError) else ", and nothing was saved"
            why = f"an asynchronous save failed{outcome}: {job.error}"
            fail(printable(why))
            if job.writer_is_gone():
                warn(why)
