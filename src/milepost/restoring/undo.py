"""Undoes a restore that failed after it had begun to change objects.

Old values are kept in memory for this, up to a limit. Values beyond the limit are not put back, and the error says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from milepost.errors import MilepostError, RefusedError

ROOM: Final = 8 << 20
"""Bytes of old values that are kept for objects that are not expected to refuse a value."""
_MIXTURE: Final = (
    "some objects hold restored values now and others hold their old values: restore again before you use them"
)
_UNCHANGED: Final = "; nothing was changed"


class Undo:
    """The functions that undo the changes of one restore, newest first."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._room = ROOM
        self._complete = True

    def add(self, step: Callable[[], object]) -> None:
        """Adds a function that undoes the next change."""
        self._steps.append(step)

    def add_if_small(self, size: int, make: Callable[[], Callable[[], object]]) -> None:
        """Adds a function that undoes the next change, if there is room for the old value.

        Args:
            size: Bytes of the old value.
            make: Copies the old value, and returns the function that puts it back.
        """
        if self.has_room(size):
            self._steps.append(make())

    def has_room(self, size: int) -> bool:
        """Reserves room for an old value of this many bytes. If there is none, the restore cannot be undone completely."""
        if size > self._room:
            self._complete = False
            return False
        self._room -= size
        return True

    def run(self) -> bool:
        """Undoes all changes.

        Returns:
            Whether all objects have their old values.
        """
        while self._steps:
            try:
                self._steps.pop()()
            except BaseException:  # of an object, or a second Ctrl-C; the first error is raised later
                self._complete = False
        return self._complete


def raise_explained(error: BaseException, file: str, *, complete: bool) -> NoReturn:
    """Raises the error that a failed restore ends with.

    Args:
        error: The error that was raised.
        file: The checkpoint.
        complete: Whether all objects have their old values.

    Raises:
        BaseException: ``error`` itself, if it is milepost's or not an `Exception`, such as `KeyboardInterrupt`.
        RefusedError: For any other ``error``, which is its cause.
    """
    try:
        if isinstance(error, Exception):
            _raise_as_ours(error, file, complete=complete)
        if not complete:
            error.add_note(f"milepost: {file} was being restored: {_MIXTURE}")
        raise error
    finally:
        del (
            error
        )  # its traceback has this frame: a cycle that would keep all objects of the restore until a garbage collection


def _raise_as_ours(error: Exception, file: str, *, complete: bool) -> NoReturn:
    arriving = error if isinstance(error, MilepostError) else refused(error)
    if not complete:
        arriving.problem = arriving.problem.removesuffix(_UNCHANGED)
        arriving.remedy = _MIXTURE
        arriving.add_note(f"milepost: {_MIXTURE}")
    elif isinstance(arriving, RefusedError) and not arriving.problem.endswith(_UNCHANGED):
        arriving.problem += _UNCHANGED
    arriving.with_context(file=file)
    try:
        if arriving is error:
            raise error
        raise arriving from error
    finally:
        del error, arriving


def refused(error: Exception) -> RefusedError:
    """The error for an exception that an object's own code, or its framework, raised."""
    what = str(error)
    return RefusedError.caused_by(
        error, f"an object did not accept its saved value: {type(error).__name__}{f': {what}' if what else ''}"
    )
