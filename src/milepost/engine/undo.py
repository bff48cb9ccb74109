"""Taking a restore back that failed after it began to change objects.

Old values are kept for this, in memory, but not without limit: what does not fit is not put back, and the error that
arrives then says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NoReturn

from milepost.errors import MilepostError, RefusedError

ROOM: Final = 8 << 20
"""Bytes of old values that are kept of objects whose taking a value is not expected to fail."""
_MIXTURE: Final = (
    "some objects hold restored values now and others their old ones: restore again before anything is done with them"
)
_UNCHANGED: Final = "; nothing was changed"
_BUILT_IN: Final = (
    MemoryError,
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
)


class Undo:
    """What takes back the changes of one restore, newest first."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._room = ROOM
        self._complete = True

    def add(self, step: Callable[[], object]) -> None:
        """Adds what takes back the change that comes next."""
        self._steps.append(step)

    def add_if_small(self, size: int, make: Callable[[], Callable[[], object]]) -> None:
        """Adds what takes back the change that comes next, if there is room for the old value.

        Args:
            size: Bytes of the old value.
            make: Copies it, and returns what puts it back.
        """
        if self.has_room(size):
            self._steps.append(make())

    def has_room(self, size: int) -> bool:
        """Takes room for an old value of this many bytes; without it, not everything can be put back."""
        if size > self._room:
            self._complete = False
            return False
        self._room -= size
        return True

    def run(self) -> bool:
        """Takes everything back.

        Returns:
            Whether all is as it was.
        """
        while self._steps:
            try:
                self._steps.pop()()
            except Exception:
                self._complete = False
            except BaseException:
                self._complete = False  # a second Ctrl-C; the first is on its way
        return self._complete


def raise_explained(error: BaseException, file: str, *, complete: bool) -> NoReturn:
    """Raises the error that a failed restore ends with.

    Args:
        error: What was raised.
        file: The checkpoint.
        complete: Whether all objects have their old values.

    Raises:
        BaseException: ``error`` itself if it is milepost's, or no error, as `KeyboardInterrupt` is.
        RefusedError: Any other error caused it.
    """
    if not isinstance(error, Exception):
        if not complete:
            error.add_note(f"milepost: {file} was being restored: {_MIXTURE}")
        raise error
    arriving = error if isinstance(error, MilepostError) else refused(error)
    if not complete:
        arriving.problem = arriving.problem.removesuffix(_UNCHANGED)
        arriving.remedy = _MIXTURE
        arriving.add_note(f"milepost: {_MIXTURE}")
    elif isinstance(arriving, RefusedError):
        arriving.problem += _UNCHANGED
    arriving.with_context(file=file)
    if arriving is error:
        raise error
    raise arriving from error


def refused(error: Exception) -> RefusedError:
    """Our error for one of an object's own code, or of its framework's."""
    what = str(error)
    return _class_for(type(error))(
        f"an object did not take its restored value: {type(error).__name__}{f': {what}' if what else ''}"
    )


def _class_for(kind: type[Exception]) -> type[RefusedError]:
    return _class_with(next((each for each in kind.__mro__ if each in _BUILT_IN), None))


@functools.cache
def _class_with(base: Any) -> type[RefusedError]:
    return (
        RefusedError if base is None else type("RefusedError", (RefusedError, base), {"__module__": "milepost.errors"})
    )
