"""Interrupts at every line: an operation is run again and again, and each time Ctrl-C comes at another line of milepost.

    def make(directory): ...     a fresh setting, in an empty directory of its own
    def operate(setting): ...    what is interrupted
    def check(setting): ...      how the program goes on; raises an error if something is wrong

    assert interrupts.found(make, operate, check) == []

Ctrl-C comes in the calling thread alone, as Python has it: as a signal, which Python raises as KeyboardInterrupt at the next instruction where
it looks for signals. (An error that a trace function raises comes where no signal does, and makes CPython 3.11 crash now and then.) Its traceback is kept while the program goes on, as a notebook keeps it, where
the test says so. After each run nothing may be left: no open file, and no thread that does
not end. The operation may raise KeyboardInterrupt and nothing else.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import CodeType, FrameType

import milepost

SOURCES = os.path.dirname(os.path.abspath(milepost.__file__)) + os.sep
QUICK = os.environ.get("MILEPOST_TESTS") == "quick"
ALL = "MILEPOST_INTERRUPTS" in os.environ
"""Whether all points are tried, which takes many minutes, instead of a sample."""

Point = collections.namedtuple("Point", "file line event number")
"""The ``number``-th time, from 1, that ``event`` ("line" or "return") happens at a line."""


class _CtrlC:
    """Leaves a Ctrl-C for the caller of the function that asks for it.

    Python looks for signals after a call, but not after an index: the Ctrl-C is still pending when the function returns.
    """

    __getitem__ = staticmethod(_thread.interrupt_main)


_CTRL_C = _CtrlC()


class _Watch:
    """Follows the lines of milepost that the calling thread executes in a block, and interrupts it at one of them.

    Args:
        at: Where to interrupt; None does not.
    """

    def __init__(self, at: Point | None = None) -> None:
        self.points: list[Point] = []
        self.raised = False
        self._at = at
        self._counts: dict[tuple[str, int, str], int] = {}
        self._thread = threading.get_ident()

    def _is_at(self, code: CodeType, line: int, event: str) -> bool:
        """Whether Ctrl-C comes at this event."""
        if threading.get_ident() != self._thread or self.raised:
            return False
        place = code.co_filename, line, event
        number = self._counts[place] = self._counts.get(place, 0) + 1
        if self._at is None:
            self.points.append(Point(*place, number))
        self.raised = self._at == (*place, number)
        return self.raised

    if sys.version_info < (3, 12):

        def _call(self, frame: FrameType, _event: str, _value: object) -> object:
            return self._local if frame.f_code.co_filename.startswith(SOURCES) else None

        def _local(self, frame: FrameType, event: str, _value: object) -> object:
            if event in ("line", "return") and self._is_at(frame.f_code, frame.f_lineno, event):
                self._stop()  # or Ctrl-C would come in the next call of this function
                _CTRL_C[signal.SIGINT]
            return self._local

        def __enter__(self) -> _Watch:
            self._before = sys.gettrace()
            sys.settrace(self._call)
            return self

        def _stop(self) -> None:
            sys.settrace(self._before)

    else:

        def _line(self, code: CodeType, line: int) -> object:
            if not code.co_filename.startswith(SOURCES):
                return sys.monitoring.DISABLE
            if self._is_at(code, line, "line"):
                self._stop()
                _CTRL_C[signal.SIGINT]
            return None

        def _return(self, code: CodeType, offset: int, _value: object) -> object:
            if not code.co_filename.startswith(SOURCES):
                return sys.monitoring.DISABLE
            line = next(line for begin, end, line in code.co_lines() if begin <= offset < end)
            if self._is_at(code, line or 0, "return"):
                self._stop()
                _CTRL_C[signal.SIGINT]
            return None

        def __enter__(self) -> _Watch:
            events = sys.monitoring.events
            self._tool = next(each for each in range(6) if sys.monitoring.get_tool(each) is None)
            sys.monitoring.use_tool_id(self._tool, "interrupts")
            sys.monitoring.register_callback(self._tool, events.LINE, self._line)
            sys.monitoring.register_callback(self._tool, events.PY_RETURN, self._return)
            sys.monitoring.restart_events()
            sys.monitoring.set_events(self._tool, events.LINE | events.PY_RETURN)
            return self

        def _stop(self) -> None:
            if sys.monitoring.get_tool(self._tool) is None:
                return
            sys.monitoring.set_events(self._tool, 0)
            for event in (sys.monitoring.events.LINE, sys.monitoring.events.PY_RETURN):
                sys.monitoring.register_callback(self._tool, event, None)
            sys.monitoring.free_tool_id(self._tool)

    def __exit__(self, *_: object) -> None:
        if not self.raised:
            self._stop()


@contextlib.contextmanager
def _limit(seconds):
    """A hang of the main thread ends in a TimeoutError."""

    def late(*_):
        raise TimeoutError(f"no end after {seconds} s")

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _lost_errors():
    """The errors that nobody can catch, as those of `__del__`. An interrupt there is lost, as in any program."""
    lost, before = [], sys.unraisablehook
    sys.unraisablehook = lambda args: (
        None if issubclass(args.exc_type, KeyboardInterrupt) else lost.append(repr(args.exc_value))
    )
    try:
        yield lost
    finally:
        sys.unraisablehook = before


def in_other_thread(work, seconds=20.0):
    """What ``work`` returns in a thread of its own. A hang is a TimeoutError."""
    done = []

    def run():
        try:
            done.append((True, work()))
        except BaseException as error:
            done.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        raise TimeoutError(f"another thread waits for more than {seconds} s")
    works, result = done[0]
    if not works:
        raise result
    return result


def _open_files():
    try:
        return sorted(os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if _is_open(each))
    except FileNotFoundError:  # another system
        return []


def _is_open(number):
    return os.path.lexists(f"/proc/self/fd/{number}")


def _left(before, threads, seconds=10.0):
    """What a run has left: files and threads."""
    end = time.monotonic() + seconds
    while (alive := [each for each in threading.enumerate() if each not in threads]) and time.monotonic() < end:
        time.sleep(0.001)
    problems = [f"thread {each.name} does not end" for each in alive]
    if len(_open_files()) > len(before):
        gc.collect()
        more = collections.Counter(_open_files()) - collections.Counter(before)
        problems += [f"open file {name}" for name, _ in more.items()]
    return problems


def _run(make, operate, check, directory, watch, seconds, is_kept):
    """One run. Returns what is wrong."""
    kept = []
    with _limit(seconds), _lost_errors() as lost:
        setting = make(directory)
        try:
            with watch:
                operate(setting)
        except KeyboardInterrupt as interrupt:
            kept += [interrupt] * is_kept
        except BaseException as error:
            return [f"the operation raised {error!r}"]
        try:
            check(setting)
        except BaseException as error:
            line = error.__traceback__
            while line.tb_next is not None and line.tb_next.tb_frame.f_code.co_filename == check.__code__.co_filename:
                line = line.tb_next
            return [f"check, line {line.tb_lineno}: {error!r}"[:600]]
    return [f"lost: {each}" for each in lost]


def points_of(make, operate, *, returns=False):
    """The points that an operation passes in its third run, when what is made once has been made."""
    points: list[Point] = []
    for _ in range(3):
        directory, threads = tempfile.mkdtemp(), set(threading.enumerate())
        setting = make(directory)
        with _Watch() as watch:
            operate(setting)
        del setting
        points = watch.points
        _left(_open_files(), threads)  # waits for what it began
        shutil.rmtree(directory, ignore_errors=True)
    return [each for each in points if returns or each.event == "line"]


def found(make, operate, check, *, more=100, most=None, returns=False, seed=0, seconds=30.0, only=None, is_kept=False):
    """Interrupts an operation at each of its lines, and returns what goes wrong then, as text; none is the aim.

    Args:
        make: Returns a fresh setting. It is given an empty directory. Nothing is interrupted in it.
        operate: Is given the setting. It is interrupted.
        check: Is given the setting after that. It raises an error if the program cannot go on or something is lost. It must wait for
            what it starts.
        more: How many points are tried beyond the first time of each line; chosen by ``seed``.
        most: How many points are tried at most; chosen by ``seed``. None is all of them. The variable MILEPOST_INTERRUPTS of the
            environment tries all first times, whatever is said here.
        returns: Whether Ctrl-C also comes when a function has returned and its caller has not got the result yet.
        seed: Chooses them.
        seconds: A run that lasts longer hangs.
        only: A part of ``file:line``, to try again what went wrong.
        is_kept: Whether the traceback of Ctrl-C is kept until ``check`` has ended.
    """
    chance = random.Random(seed)
    points = points_of(make, operate, returns=returns)
    chosen = [point for point in points if point.number == 1]
    others = [point for point in points if point.number != 1]
    more = more // 10 if QUICK else more
    chosen += chance.sample(others, min(more, len(others)))
    most = None if ALL else 60 if QUICK and most is None else most
    if most is not None and len(chosen) > most:
        chosen = chance.sample(chosen, most)
    wrong, hangs = [], 0
    for point in chosen:
        name = f"{point.file.removeprefix(SOURCES)}:{point.line} {point.event} {point.number}"
        if only is not None and only not in name:
            continue
        files, threads = _open_files(), set(threading.enumerate())
        directory = tempfile.mkdtemp()
        problems = _run(make, operate, check, directory, _Watch(point), seconds, is_kept)
        problems += _left(files, threads)
        shutil.rmtree(directory, ignore_errors=True)
        wrong += [f"{name}: {each}" for each in problems]
        hangs += any("TimeoutError" in each or "does not end" in each for each in problems)
        if hangs >= 5:
            wrong.append("given up: too many runs hang")
            break
    return wrong


def names_in(directory):
    """The names of all files below a directory."""
    return sorted(str(each.relative_to(directory)) for each in Path(directory).rglob("*") if each.is_file())
