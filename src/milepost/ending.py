"""The end of the process: what is waited for before it, and the exit status.

Python gives a program no way to change its exit status once its last line has run. It has one of its own: if the standard error stream cannot
be flushed when the interpreter is finalized, the status is `STATUS`, after everything else has ended in order. So `fail` makes that flush
raise an error. `os._exit` would skip what other libraries do at the end.

A process of `multiprocessing` ends by `os._exit`, without that flush and without `atexit`. There an error in the functions that `threading`
calls before it waits for threads makes the status 1.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

STATUS: Final = 120
"""The exit status of Python for an error in the cleanup at the end of the process."""
_functions: Final[list[Callable[[], object]]] = []
_failures: Final[list[tuple[int, str]]] = []
"""The processes that have to end with an error, and why. A forked child has not failed."""


class _End:
    """How far the end is.

    Attributes:
        ending: The process whose functions of `atexit` are called, or None.
        raised: The process in which an error has changed the status, or None.
    """

    ending: int | None = None
    raised: int | None = None


def before_end(function: Callable[[], object]) -> None:
    """Has a function called when the process ends: before Python waits for threads, and again when `atexit` calls functions.

    Between the two, threads and functions of the program end, which may begin something that the function is to wait for.
    """
    _functions.append(function)


def fail(why: str) -> None:
    """Makes the process end with an exit status other than 0, and say why on the standard error stream."""
    _failures.append((os.getpid(), why))
    if is_last_call():
        _end_with_error()


def is_last_call() -> bool:
    """Whether the functions of `before_end` were called for the last time, or are being called so."""
    return _End.ending == os.getpid()


def say(text: str) -> None:
    """Writes to the standard error stream. Nobody would raise an error at the end of a process, and warnings may be turned off."""
    with suppress(Exception):  # the stream may be closed
        print(f"milepost: {text}", file=sys.stderr, flush=True)


class _UnflushedStream:
    """The standard error stream, which cannot be flushed by the interpreter itself, and by everyone else as before.

    Args:
        stream: The stream.
    """

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def flush(self) -> None:
        self._stream.flush()
        try:
            sys._getframe(1)
        except ValueError:  # no function of Python calls this, so the interpreter does
            raise OSError("a save has failed, so this process ends with an error") from None


def _before_threads() -> None:
    for each in _functions:
        each()
    if _failed() and _is_of_multiprocessing() and _End.raised != os.getpid():
        _End.raised = os.getpid()
        _wait_for_threads()
        _say_why(1)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # as `multiprocessing` does
                stream.flush()
        raise SystemExit(1)


def _at_end() -> None:
    _End.ending = os.getpid()
    for each in _functions:
        each()
    if _failed():
        _end_with_error()


def _end_with_error() -> None:
    stream: Any = sys.stderr
    if not isinstance(stream, _UnflushedStream):
        sys.stderr = _UnflushedStream(io.StringIO() if stream is None or stream.closed else stream)
    _say_why(STATUS)


def _failed() -> bool:
    return any(process == os.getpid() for process, _ in _failures)


def _say_why(status: int) -> None:
    reasons = [why for process, why in _failures if process == os.getpid() and why]
    _failures[:] = [(process, "") for process, _ in _failures]
    for why in reasons:
        say(f"the exit status of this process is {status}, because {why}")


def _is_of_multiprocessing() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _wait_for_threads() -> None:
    """Waits for the threads of the program, as Python does right after this if there is no error."""
    for thread in threading.enumerate():
        if not thread.daemon and thread not in (threading.main_thread(), threading.current_thread()):
            thread.join()


atexit.register(_at_end)
with suppress(AttributeError, RuntimeError):  # a private name; and a process that is ending registers no more
    threading._register_atexit(_before_threads)  # type: ignore[attr-defined]
