"""Tells a program how far a long save or restore is.

A save, a restore and the like are `reporting` while they run. They declare the number of bytes, divide their work into
stages, and report success. The bytes are counted where they are read and written (`milepost.bundle.counting`). Threads
count without a lock, each for itself; only the thread that began calls the program's function.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.counting import counted_by, counter
from milepost.engine.arguments import wrong
from milepost.errors import UnsupportedError, warn

_PAUSE: Final = 0.1
"""Seconds between two calls of the program's function, unless one of them is the last."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a save or restore is, as a function of ``CheckpointOptions(progress=...)`` is told.

    Attributes:
        operation: ``"save"``, ``"restore"``, ``"load"`` (`milepost.load`), ``"convert"`` (`milepost.convert`) or ``"verify"``
            (`CheckpointReader.verify`).
        path: The path of the checkpoint, or of the file of another library.
        bytes_done: How many bytes are done. It never decreases, and is ``bytes_total`` only when all is done.
        bytes_total: The bytes of all values that this process writes, or of all that its live objects take. Positions in files,
            names and checksums are not counted. A restore goes over some values twice, to verify them and to assign
            them; their bytes count in part each time.
        seconds: Seconds since the beginning.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> told = []
        >>> options = milepost.CheckpointOptions(progress=told.append)
        >>> path = milepost.Checkpoint(v=np.ones(1000)).write(tempfile.mkdtemp() + "/ckpt", options)
        >>> [(each.operation, each.bytes_done, each.bytes_total) for each in told]
        [('save', 0, 8000), ('save', 8000, 8000)]
    """

    operation: str
    path: str
    bytes_done: int
    bytes_total: int
    seconds: float


Shown = bool | Callable[[Progress], Any]
"""What a program passes as ``progress``: a function, or True for a progress bar."""


def check_progress(progress: Any) -> None:
    """Checks an argument ``progress``.

    Raises:
        UnsupportedError: It is neither True nor False nor a function of one argument, or it is True and rich is not installed.
    """
    expected = "True for a progress bar, or a function of one argument, a milepost.Progress"
    if progress is True:
        from importlib.util import find_spec  # only a progress bar needs it

        if find_spec("rich") is None:
            raise UnsupportedError(
                "a progress bar needs the library rich, which is not installed",
                key="progress",
                remedy='run: pip install "milepost[progress]"; or pass a function that shows the progress',
            )
    if progress is None or isinstance(progress, bool):
        return
    if not callable(progress):
        raise wrong("progress", progress, expected)
    try:
        signature = inspect.signature(progress)
    except (TypeError, ValueError):
        return  # A function in C may not tell its arguments.
    try:
        signature.bind(None)
    except TypeError:
        raise wrong("progress", progress, expected) from None


class Reporter:
    """Tells a function how far one operation is.

    Args:
        show: The function.
        operation: As for `Progress`.
        path: As for `Progress`.
    """

    def __init__(self, show: Callable[[Progress], object], operation: str, path: str) -> None:
        self._show: Callable[[Progress], object] | None = show
        self._operation = operation
        self._path = path
        self._thread = get_ident()
        self._outer = counter()
        self._counts: dict[int, int] = {}
        """By thread, the bytes of the present stage."""
        self._size = 0
        self._stages = [0]
        """Bytes that each stage goes over."""
        self._ended = 0
        self._told = 0
        self._began = time.monotonic()
        self._due = 0.0

    def begin(self, sizes: Iterable[int], stages: Sequence[Iterable[int]] = ()) -> None:
        """Says what there is to do.

        Args:
            sizes: The bytes of each value.
            stages: For each stage, the bytes of the values that it goes over. If none are given, there is one stage, which goes
                over all.
        """
        self._size = sum(sizes)
        self._stages = [sum(stage) for stage in stages] or [self._size]
        self._tell(0)

    @contextmanager
    def stage(self) -> Iterator[None]:
        """Counts what is read and written inside as one of the stages."""
        with counted_by(self._count):
            yield
        self._ended += 1
        self._counts.clear()
        self._tell_if_due()

    def finish(self) -> None:
        """Says that all is done and nothing can fail any more."""
        self._tell(self._size)

    def _count(self, size: int) -> None:
        if self._outer is not None:
            self._outer(size)
        thread = get_ident()
        self._counts[thread] = self._counts.get(thread, 0) + size
        if thread == self._thread:
            self._tell_if_due()

    def _tell_if_due(self) -> None:
        if time.monotonic() >= self._due:
            # padding, and bytes that are read more than once, must not run ahead of the stage
            counted = min(sum(self._counts.copy().values()), sum(self._stages[self._ended : self._ended + 1]))
            done = (sum(self._stages[: self._ended]) + counted) * self._size // max(sum(self._stages), 1)
            if self._told < done < self._size:
                self._tell(done)

    def _tell(self, done: int) -> None:
        show = self._show
        if show is None:
            return
        self._told = done
        seconds = time.monotonic() - self._began
        try:
            with counted_by(None):
                show(Progress(self._operation, self._path, done, self._size, seconds))
        except Exception as error:
            self._show = None
            name = getattr(show, "__qualname__", None) or repr(show)
            warn(
                f"{self._path}: the function {name} of progress=... raised {type(error).__name__}: {error}. The {self._operation} "
                "continues and does not call it again: correct the function, or leave progress out"
            )
        self._due = time.monotonic() + _PAUSE


def reporting(
    progress: Shown | None, operation: str, path: str, *, leads: bool = True
) -> AbstractContextManager[Reporter | None]:
    """Reports on an operation while it runs, on the thread that runs it.

    Args:
        progress: The value that the program has passed.
        operation: As for `Progress`.
        path: As for `Progress`.
        leads: Whether this process shows a progress bar. With several processes, process 0 does.

    Returns:
        A context manager, whose value is None if there is no progress function.

    Example:
        >>> told = []
        >>> with reporting(told.append, "save", "run/ckpt-1") as progress:
        ...     progress.begin([8, 4])
        ...     with progress.stage():
        ...         pass  # write
        ...     progress.finish()
        >>> [each.bytes_done for each in told]
        [0, 12]
    """
    # an object that can be called may be empty, and so count as false
    if progress is None or progress is False or (progress is True and not leads):
        return nullcontext()
    return _shown_in_bar(operation, path) if progress is True else nullcontext(Reporter(progress, operation, path))


@contextmanager
def _shown_in_bar(operation: str, path: str) -> Iterator[Reporter]:
    from milepost.engine.progress_bar import Bar  # rich is imported when it is needed

    bar = Bar()
    try:
        yield Reporter(bar.show, operation, path)
    finally:
        bar.close()


@contextmanager
def reported(progress: Shown | None, operation: str, path: str, sizes: Iterable[int]) -> Iterator[None]:
    """Reports on a block that goes over all values once. When it ends without an error, nothing can fail any more.

    Args:
        progress: As for `reporting`.
        operation: As for `Progress`.
        path: As for `Progress`.
        sizes: The bytes of each value.

    Example:
        >>> told = []
        >>> with reported(told.append, "verify", "run/ckpt-1", [8, 4]):
        ...     pass  # read
        >>> [each.bytes_done for each in told]
        [0, 12]
    """
    with reporting(progress, operation, path) as reporter, in_one_stage(reporter, sizes):
        yield


@contextmanager
def in_one_stage(progress: Reporter | None, sizes: Iterable[int]) -> Iterator[None]:
    """Reports on a block that goes over all values once, as `reported` does, through reports that have begun.

    Args:
        progress: The value of the context manager that `reporting` returned.
        sizes: The bytes of each value.
    """
    if progress is None:
        yield
        return
    progress.begin(sizes)
    with progress.stage():
        yield
    progress.finish()


def array_sizes(arrays: Iterable[Any]) -> Iterator[int]:
    """The bytes of the values of arrays that are to be written; of strings, their lengths."""
    for array in arrays:
        if array.dtype == object:
            # anything else than a string is an error later
            yield sum(len(each) for each in np.asarray(array).ravel().tolist() if isinstance(each, (bytes, str)))
        else:
            yield array.nbytes


def saved_sizes(reader: BundleReader, keys: Iterable[str]) -> Iterator[int]:
    """The bytes of tensors of an open checkpoint."""
    for key in keys:
        entry = reader.entry(key)
        # a tensor in pieces and one of a checkpoint of version 1 have no run of bytes of their own
        yield entry.size or entry.spec.nbytes
