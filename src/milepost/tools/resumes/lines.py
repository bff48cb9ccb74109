"""Calls a function at each line that some frames run, and where they return, as a debugger does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

_MOST_SECONDS: Final = 20.0


class Lines:
    """The lines that frames run from now on, until `stop` or until there were very many.

    A program that is traced already, as by a debugger, is left alone.

    Args:
        frames: The frames, which are running now.
        call: What to call with the frame, before each line.
        most: The most lines.
    """

    def __init__(self, frames: Sequence[FrameType], call: Callable[[FrameType], object], most: int) -> None:
        self._frames = list(frames)
        self._call = call
        self._left = most
        self._end = time.monotonic() + _MOST_SECONDS
        self.is_running = sys.gettrace() is None
        if self.is_running:
            for frame in self._frames:
                frame.f_trace = self._trace
            sys.settrace(self._ignore)

    def stop(self) -> None:
        """Calls nothing any more."""
        if self.is_running:
            self.is_running = False
            sys.settrace(None)
            for frame in self._frames:
                frame.f_trace = None
            self._frames = []

    def _ignore(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called for each function that is called, whose lines are not wanted."""

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self.is_running:
            return None
        if event in ("line", "return"):  # the last line of a function may be the one that sets a value
            self._left -= 1
            if self._left < 0 or time.monotonic() > self._end:
                self.stop()
                return None
            self._call(frame)
        return self._trace
