"""Every exception and warning milepost raises, on one page.

::

    MilepostError
    ├── CheckpointNotFoundError  (FileNotFoundError)  no checkpoint, directory or shard where one was named
    ├── KeyNotFoundError         (KeyError)           the checkpoint has no value under that key
    ├── CorruptCheckpointError   (ValueError)         bytes that are damaged, truncated, swapped or not a checkpoint
    ├── StateFileError           (ValueError)         a `checkpoint` state file that cannot be understood
    ├── UnsupportedError         (NotImplementedError) well-formed, but outside what milepost does
    ├── MismatchError            (ValueError)         saved and live values differ in shape or dtype
    ├── RefusedError             (what was raised)    an object, or its framework, failed on the value it was given
    ├── UntrackableError         (ValueError)         an object that cannot take part in a checkpoint
    ├── UnmatchedError           (AssertionError)     a status assertion does not hold
    ├── CheckpointExistsError    (FileExistsError)    a save would replace a checkpoint it knows nothing of
    ├── AdapterError             (ImportError)        the installed version of a framework is one that milepost cannot use
    └── StorageError             (OSError)            the disk refused: full, read-only, failing
        └── AfterCommitError                          a checkpoint is saved, but something that comes after it failed

    MilepostWarning              (UserWarning)
    ├── UntrackedWarning         something that holds trackable objects is not saved
    ├── UnrestoredWarning        saved values that were never given to any object
    └── SkippedCheckpointWarning a damaged or missing checkpoint was passed over

Each also derives from the built-in a caller would catch, and, once TensorFlow is imported, from its counterpart in
``tf.errors`` (`milepost.tensorflow_errors`). Each names, as far as they are known, the key, the file, what was expected, what
was found and what to do; the same facts are attributes of the exception. Keys, paths and text of files are printed with
control characters escaped, so that a file cannot send commands to a terminal or forge lines of a log.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
from types import FrameType
from typing import Any, Final, NamedTuple, Self

from milepost.tensorflow_errors import made_again, tensorflow_kind

_ANOTHER_CHECKPOINT = "use an intact copy or another checkpoint; milepost.latest_checkpoint() passes over damaged ones"
_FACTS = ("key", "file", "expected", "found", "remedy")
_NAMES = ("key", "file")
_HEAP_TYPE: Final = 1 << 9
"""Of ``type.__flags__``: the class was made by a ``class`` statement."""


def printable(text: str, *, one_line: bool = False) -> str:
    r"""Text with everything escaped that is not to be seen: control characters, marks that turn the reading direction.

    Args:
        text: Any text.
        one_line: Whether to escape tabs and the ends of lines, too.

    Example:
        >>> printable("ckpt\x1b[2J\u202e")
        'ckpt\\x1b[2J\\u202e'
    """
    if text.isprintable():
        return text
    kept = "" if one_line else "\n\t"
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


class MilepostError(Exception):
    """Base of all errors that milepost raises.

    Args:
        problem: One sentence: what is wrong.
        key: The checkpoint key or object path concerned.
        file: The file concerned.
        expected: What should have been there.
        found: What was there.
        remedy: What the reader can do about it.

    Example:
        >>> print(MilepostError("wrong shape", key="net/kernel", expected=(1, 5), found=(5, 1)))
        wrong shape
          key: net/kernel
          expected: (1, 5)
          found: (5, 1)
    """

    def __new__(cls, problem: str = "", *, errno: int | None = None, **facts: Any) -> Self:
        kind = tensorflow_kind(cls, errno)
        made_by: type = kind
        while made_by.__flags__ & _HEAP_TYPE:  # classes of Python are made by the built-in one whose memory they have
            made_by = made_by.__base__ or object
        return made_by.__new__(kind, problem)  # type: ignore[return-value]

    def __init__(
        self,
        problem: str,
        *,
        key: object = None,
        file: object = None,
        expected: object = None,
        found: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.key = key
        self.file = file
        self.expected = expected
        self.found = found
        self.remedy = remedy
        super().__init__(problem)

    def __str__(self) -> str:
        lines = [printable(str(self.problem))]
        for fact in _FACTS:
            value = getattr(self, fact, None)
            if value is not None:
                lines.append(f"  {fact}: {printable(str(value), one_line=fact in _NAMES)}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return made_again(self)

    def with_context(self, **facts: Any) -> Self:
        """Fills in facts that a lower layer could not know; what is already set stays.

        Args:
            **facts: Any of ``key``, ``file``, ``expected``, ``found``, ``remedy``.

        Returns:
            This exception, to be raised again.
        """
        for fact, value in facts.items():
            if fact not in _FACTS:
                raise TypeError(f"{fact!r} is not a fact of an error; those are {', '.join(_FACTS)}")
            if getattr(self, fact) is None:
                setattr(self, fact, value)
        return self


class CheckpointNotFoundError(MilepostError, FileNotFoundError):
    """No checkpoint, directory or data shard exists where one was named."""


class KeyNotFoundError(MilepostError, KeyError):
    """The checkpoint holds no value under the key asked for."""


class CorruptCheckpointError(MilepostError, ValueError):
    """The bytes are damaged, truncated, swapped with others, or not a checkpoint at all."""

    def __init__(self, problem: str, *, remedy: str | None = None, **facts: Any) -> None:
        super().__init__(problem, remedy=remedy or _ANOTHER_CHECKPOINT, **facts)

    def with_context(self, **facts: Any) -> Self:
        if self.remedy == _ANOTHER_CHECKPOINT:
            self.remedy = facts.get("remedy", _ANOTHER_CHECKPOINT)
        return super().with_context(**facts)


class StateFileError(MilepostError, ValueError):
    """The ``checkpoint`` state file cannot be understood."""


class UnsupportedError(MilepostError, NotImplementedError):
    """Well-formed input, or a well-formed request, that milepost does not handle."""


class MismatchError(MilepostError, ValueError):
    """Saved and live values differ in shape or dtype; nothing was changed.

    Attributes:
        report: The full `milepost.Report` of the restore, where one exists.
    """

    report: Any = None


class RefusedError(MilepostError):
    """An object, or its framework, failed on the value that a restore gave it; the cause is what it raised.

    An instance also is of the built-in class that the cause is of: `RuntimeError`, for example, or `MemoryError`.
    """


class UntrackableError(MilepostError, ValueError):
    """An object, or the way it is held, cannot take part in a checkpoint."""


class UnmatchedError(MilepostError, AssertionError):
    """An assertion about a restore does not hold.

    Attributes:
        report: The full `milepost.Report` of the restore.
    """

    report: Any = None


class CheckpointExistsError(MilepostError, FileExistsError):
    """A save would replace checkpoints, or join a series of them, that this process neither wrote nor restored."""


class AdapterError(MilepostError, ImportError):
    """The adapter of an imported framework cannot be imported, mostly because the framework no longer has a private name.

    Nothing is saved or restored then, since the framework's objects would be left out.

    Args:
        problem: One sentence: what is wrong.
        framework: Name of the framework's package.
        version: Its installed version.
        tried: The versions that the adapter was tried with.
        **facts: As for `MilepostError`; ``key`` is the name that is gone, where that is known.
    """

    def __init__(self, problem: str, *, framework: str = "", version: str = "", tried: str = "", **facts: Any) -> None:
        super().__init__(problem, **facts)
        self.framework = framework
        self.version = version
        self.tried = tried
        self.name = facts.get("key")


class StorageError(MilepostError, OSError):
    """The operating system refused a file operation; ``errno`` says why.

    Args:
        problem: What was being done.
        errno: The operating system's error number, as in ``OSError.errno``.
        **facts: As for `MilepostError`.
    """

    def __init__(self, problem: str, *, errno: int | None = None, **facts: Any) -> None:
        super().__init__(problem, **facts)
        self.errno = errno


class AfterCommitError(StorageError):
    """A checkpoint is saved and can be restored, but something that a save does after that failed.

    The error says what: the checkpoint may not survive a power cut, or its directory's state file does not name it yet. Its
    number is used, and the process can go on saving. Do not save it again.
    """


class MilepostWarning(UserWarning):
    """Base of all warnings that milepost issues."""


class UntrackedWarning(MilepostWarning):
    """Something that holds trackable objects will not be saved."""


class UnrestoredWarning(MilepostWarning):
    """Values of a restored checkpoint were never given to any object, or live values were not in it."""


class SkippedCheckpointWarning(MilepostWarning):
    """A damaged or missing checkpoint was passed over for an older one."""


_OWN_CODE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_INSTALLED: Final = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Place(NamedTuple):
    """A line of a program: its file, its number and its module."""

    filename: str
    line: int
    module: str


def user_place() -> Place:
    """The user's line that is being executed, as `warn` finds it; for a warning that is issued later."""
    frame = _user_frame(sys._getframe(1))
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__", "__main__"))


def warn(message: str, category: type[MilepostWarning] = MilepostWarning, place: Place | None = None) -> None:
    """Issues a warning that points at the user's line.

    That is the innermost line that is neither milepost's nor that of an installed library; where there is none, as on a
    thread of milepost's own, the innermost that is not milepost's.

    Args:
        message: What is wrong, and what to do.
        category: Its class.
        place: The line that it points at instead.

    Example:
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warn("the clock went back")
        >>> caught[0].filename == __file__ or caught[0].filename.startswith("<doctest")
        True
    """
    if place is not None:
        warnings.warn_explicit(message, category, filename=place.filename, lineno=place.line, module=place.module)
        return
    frame = _user_frame(sys._getframe(1))
    warnings.warn_explicit(
        printable(message),
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__", "__main__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _user_frame(frame: FrameType) -> FrameType:
    outside: FrameType | None = None
    each: FrameType | None = frame
    while each is not None:
        file = each.f_code.co_filename
        if not file.startswith(_OWN_CODE):
            if not file.startswith(_INSTALLED) and not file.startswith("<frozen"):
                return each
            outside = outside or each
        each = each.f_back
    return outside or frame
