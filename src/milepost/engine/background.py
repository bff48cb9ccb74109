"""One save at a time in the background, whose errors are never lost."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from milepost.errors import warn


class BackgroundWriter:
    """Runs one job at a time on a thread that the interpreter waits for before it ends.

    Example:
        >>> writer = BackgroundWriter()
        >>> writer.submit(lambda: None)
        >>> writer.wait()
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._errors: list[BaseException] = []
        weakref.finalize(self, _tell, self._errors)

    def submit(self, job: Callable[[], object]) -> None:
        """Starts a job once the one before it has ended; raises what that one raised instead, if it failed."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(job,), name="milepost-save", daemon=False)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the job in flight, and raises what it raised.

        An error is raised once; the next call finds a clean slate.
        """
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join()
        self._thread = None
        if self._errors:
            raise self._errors.pop()

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            # Raised again in the thread that asks, or told when nobody does.
            self._errors.append(error)

    # A copy of a checkpoint has nothing in flight.

    def __deepcopy__(self, memo: object) -> BackgroundWriter:
        return BackgroundWriter()

    def __reduce__(self) -> tuple[type[BackgroundWriter], tuple[()]]:
        return BackgroundWriter, ()


def _tell(errors: list[BaseException]) -> None:
    """Runs when the writer is gone, or the process ends, and nobody has asked how its last job went."""
    for error in errors:
        warn(f"an asynchronous save failed, and nothing was saved: {error}")
