"""Shows the progress of a long save or restore on the standard error stream, with rich.

On a terminal and in a notebook it is a bar with bytes, rate and time left. Elsewhere, such as in the log of a batch job, it is a line
every ten seconds. An operation of less than a second on a terminal, or less than ten seconds elsewhere, shows nothing.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from milepost.errors import printable
from milepost.graph.description import shortened

if TYPE_CHECKING:
    from milepost.engine.progress import Progress

_LONG: Final = 1.0
"""Seconds after which a bar appears."""
_LINES: Final = 10.0
"""Seconds between two lines."""
_WIDE_ENOUGH_FOR_RATE: Final = 60
_WIDE_ENOUGH_FOR_BAR: Final = 80
"""Letters in a line of the terminal. A display of two lines would be drawn again below itself."""
_LEAST_PATH: Final = 8
_VERBS: Final = {
    "save": ("saving", "saved"),
    "restore": ("restoring", "restored"),
    "load": ("loading", "loaded"),
    "compare": ("comparing", "compared"),
    "convert": ("converting", "converted"),
    "read": ("reading", "read"),
    "verify": ("verifying", "verified"),
}


class Bar:
    """The display of one operation."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._is_live = console.is_jupyter or (console.is_terminal and not console.is_dumb_terminal)
        # only the bar shrinks if there is no room for all
        columns = [
            (DownloadColumn(table_column=Column(no_wrap=True)), 14),
            (TimeRemainingColumn(table_column=Column(no_wrap=True)), 8),
        ]
        if console.width >= _WIDE_ENOUGH_FOR_RATE:
            columns.insert(1, (TransferSpeedColumn(table_column=Column(no_wrap=True)), 11))
        if console.width >= _WIDE_ENOUGH_FOR_BAR:
            columns.insert(0, (BarColumn(), 5))  # at least, beside a long path
        self._room = console.width - sum(width for _, width in columns)
        self._shown = RichProgress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            *(column for column, _ in columns),
            console=console,
            auto_refresh=False,  # otherwise it starts a thread, which a fork of the process could leave with a lock held
        )
        self._task = self._shown.add_task("", total=None)
        self._next_line = _LINES
        self._has_lines = False
        self._has_begun = False

    def show(self, progress: Progress) -> None:
        """Shows how far the operation is."""
        if self._is_live:
            doing = _VERBS[progress.operation][0]
            description = f"{doing} {shortened(progress.path, max(_LEAST_PATH, self._room - len(doing) - 1))}"
            self._shown.update(
                self._task,
                description=description,
                total=progress.bytes_total,
                completed=progress.bytes_done,
            )
            if progress.seconds >= _LONG:
                self._has_begun = True
                self._shown.start()
                self._shown.refresh()
        elif progress.seconds >= self._next_line or (self._has_lines and progress.bytes_done == progress.bytes_total):
            self._has_lines = True
            self._next_line = progress.seconds + _LINES
            print(line(progress), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the display, and leaves what it shows."""
        if self._has_begun:
            with suppress(Exception):  # a terminal that is gone must not fail a save
                self._shown.stop()


def line(progress: Progress) -> str:
    """How far an operation is, in one line.

    Example:
        >>> from milepost.engine.progress import Progress
        >>> line(Progress("save", "run/ckpt-3", 10**9, 4 * 10**9, 10.0))
        'milepost: saving run/ckpt-3: 1.0 GB of 4.0 GB (25%), 100.0 MB/s, 30 s left'
        >>> line(Progress("save", "run/ckpt-3", 4 * 10**9, 4 * 10**9, 40.0))
        'milepost: saved run/ckpt-3: 4.0 GB in 40 s'
    """
    doing, did = _VERBS[progress.operation]
    path, done, total = printable(progress.path, one_line=True), progress.bytes_done, progress.bytes_total
    if done == total:
        return f"milepost: {did} {path}: {decimal(total)} in {progress.seconds:.0f} s"
    text = f"milepost: {doing} {path}: {decimal(done)} of {decimal(total)} ({done * 100 // total}%)"
    if not done or not progress.seconds:
        return text
    left = progress.seconds * (total - done) / done
    return f"{text}, {decimal(int(done / progress.seconds))}/s, {left:.0f} s left"
