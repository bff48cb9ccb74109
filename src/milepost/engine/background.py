"""One save at a time in the background, whose errors are never lost."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundWriter:
    """Runs one job at a time on a thread that the interpreter waits for before it ends.

    Example:
        >>> writer = BackgroundWriter()
        >>> writer.submit(lambda: None)
        >>> writer.wait()
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

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
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            self._error = error

    def __deepcopy__(self, memo: object) -> BackgroundWriter:
        return BackgroundWriter()

    def __reduce__(self) -> tuple[type[BackgroundWriter], tuple[()]]:
        return BackgroundWriter, ()
