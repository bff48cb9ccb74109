"""Every exception and warning that milepost raises.

::

    MilepostError
    ├── CheckpointNotFoundError  (FileNotFoundError)  a checkpoint, directory or data file does not exist
    ├── KeyNotFoundError         (KeyError)           the checkpoint has no value of this key
    ├── CorruptCheckpointError   (ValueError)         a file is damaged, truncated, swapped or no checkpoint
    ├── StateFileError           (ValueError)         a state file (the file `checkpoint` of a directory) is malformed
    ├── UnsupportedError         (NotImplementedError) the input or request is valid, but not supported
    ├── MismatchError            (ValueError)         a saved value does not fit the live object: shape, dtype
    │   └── RefusedError         (what was raised)    an object or its framework raised an error for a saved value
    ├── UntrackableError         (ValueError)         an object cannot be saved as it is held
    ├── ArgumentError            (ValueError)         an argument has a value outside of its range
    ├── UnmatchedError           (AssertionError)     an assertion about a restore failed
    ├── CheckpointExistsError    (FileExistsError)    a save would replace checkpoints of another run
    ├── CoordinationError        (RuntimeError)       the processes of a program did not save or restore together
    ├── AdapterError             (ImportError)        milepost cannot use the installed version of a framework
    └── StorageError             (OSError)            the operating system refused a file operation
        └── AfterCommitError                          the checkpoint is saved, but a later step failed

    MilepostWarning              (UserWarning)
    ├── UntrackedWarning         an object that may hold state is not saved
    ├── UnrestoredWarning        saved values were not restored, or live values were not saved
    └── SkippedCheckpointWarning a damaged or missing checkpoint was skipped

Each error is also of the built-in class in parentheses. Once TensorFlow is imported, it is also of the corresponding
class of ``tf.errors`` (`milepost.tensorflow_errors`). Each message gives the key, the file, what was expected, what was
found and what to do, if these are known. The same facts are attributes of the exception. Control characters in
keys, paths and text from files are escaped, so that a file cannot send commands to a terminal or forge lines of a log.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Final, NamedTuple, Self

from milepost.tensorflow_errors import made_again, tensorflow_kind

_ANOTHER_CHECKPOINT = "use an intact copy or another checkpoint; milepost.latest_checkpoint() skips damaged ones"
_FACTS = ("key", "file", "expected", "found", "remedy")
_NAMES = ("key", "file")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_HEAP_TYPE: Final = 1 << 9
"""Of ``type.__flags__``: the class was made by a ``class`` statement."""


def printable(text: str, *, one_line: bool = False) -> str:
    r"""Text with invisible characters escaped, such as control characters and marks that change the reading direction.

    Args:
        text: Any text.
        one_line: Whether to escape tabs and line ends as well.

    Example:
        >>> printable("ckpt\x1b[2J\u202e")
        'ckpt\\x1b[2J\\u202e'
    """
    if text.isprintable():
        return text
    kept = "" if one_line else "\n\t"
    return "".join(letter if letter.isprintable() or letter in kept else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    """A character as Python writes it in text. Its own codec is a module, for which there may be no file left to open."""
    code = ord(letter)
    if letter in _SHORT:
        return _SHORT[letter]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class MilepostError(Exception):
    """Base of all errors that milepost raises.

    Args:
        problem: One sentence: what is wrong.
        key: The checkpoint key or object path concerned.
        file: The file concerned.
        expected: What should have been there.
        found: What was there.
        remedy: What the user can do about it.

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
        return _message(self, _FACTS)

    def __reduce__(self) -> tuple[Any, ...]:
        return made_again(self)

    def with_context(self, **facts: Any) -> Self:
        """Fills in facts that a lower layer could not know. Facts that are already set stay.

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


def without_remedy(error: MilepostError) -> str:
    """The message of an error without its remedy, for a warning that milepost has handled the error.

    Example:
        >>> print(without_remedy(CorruptCheckpointError("wrong checksum", file="ckpt-1.index")))
        wrong checksum
          file: ckpt-1.index
    """
    return _message(error, [fact for fact in _FACTS if fact != "remedy"])


def _message(error: MilepostError, facts: Iterable[str]) -> str:
    lines = [printable(str(error.problem))]
    for fact in facts:
        value = getattr(error, fact, None)
        if value is not None:
            lines.append(f"  {fact}: {printable(str(value), one_line=fact in _NAMES)}")
    return "\n".join(lines)


class CheckpointNotFoundError(MilepostError, FileNotFoundError):
    """A checkpoint, directory or data file does not exist."""


class KeyNotFoundError(MilepostError, KeyError):
    """The checkpoint has no value of this key."""


class CorruptCheckpointError(MilepostError, ValueError):
    """A file is damaged, truncated, swapped with another, or not a checkpoint at all."""

    def __init__(self, problem: str, *, remedy: str | None = None, **facts: Any) -> None:
        super().__init__(problem, remedy=remedy or _ANOTHER_CHECKPOINT, **facts)

    def with_context(self, **facts: Any) -> Self:
        if self.remedy == _ANOTHER_CHECKPOINT:
            self.remedy = facts.get("remedy", _ANOTHER_CHECKPOINT)
        return super().with_context(**facts)


class StateFileError(MilepostError, ValueError):
    """A state file, which is the file ``checkpoint`` of a directory, is malformed."""


class UnsupportedError(MilepostError, NotImplementedError):
    """The input or request is valid, but milepost does not support it."""


class MismatchError(MilepostError, ValueError):
    """A saved value does not fit the live object, for example because shapes or dtypes differ.

    Nothing was changed, unless the message says that the objects must be restored again.

    Attributes:
        report: The full report of the restore, where one exists.
    """

    report: Any = None


class RefusedError(MismatchError):
    """An object or its framework raised an error for a saved value, for example in ``load_state_dict()``.

    The ``__cause__`` is that error. The exception is also of the built-in class of its cause, such as `RuntimeError` or
    `MemoryError`. Nothing was changed, unless the message says that the objects must be restored again.
    """

    @classmethod
    def caused_by(cls, cause: Exception, problem: str, **facts: Any) -> RefusedError:
        """A `RefusedError` that is also of the built-in class of its cause.

        Args:
            cause: What the object or its framework raised.
            problem: One sentence: what is wrong.
            **facts: As for `MilepostError`.

        Example:
            >>> error = RefusedError.caused_by(RuntimeError("not ready"), "an object did not accept its saved state")
            >>> isinstance(error, RuntimeError), isinstance(error, MismatchError)
            (True, True)
        """
        built_in = next((each for each in type(cause).__mro__ if each in _CAUSES), None)
        return _refused_and(built_in)(problem, **facts)


_CAUSES: Final = (
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


@functools.cache
def _refused_and(built_in: Any) -> type[RefusedError]:
    if built_in is None or issubclass(RefusedError, built_in):
        return RefusedError
    return type("RefusedError", (RefusedError, built_in), {"__module__": RefusedError.__module__})


class UntrackableError(MilepostError, ValueError):
    """An object cannot be saved, or cannot be saved as it is held."""


class ArgumentError(MilepostError, ValueError):
    """An argument of the right type has a value outside of its range, such as an interval of 0 steps."""


class UnmatchedError(MilepostError, AssertionError):
    """An assertion about a restore, or about a run that was resumed, failed.

    Attributes:
        report: The full report of the restore; None for a run.
    """

    report: Any = None


class CheckpointExistsError(MilepostError, FileExistsError):
    """A save would replace checkpoints, or add to a series of checkpoints, that this process neither saved nor restored."""


class AdapterError(MilepostError, ImportError):
    """milepost cannot use the installed version of a framework: it is too old, or a private name that milepost needs is gone.

    It is raised by a save or restore that meets an object of that framework, and by an import of a module of milepost for its users.
    Objects of other libraries are saved and restored.

    Args:
        problem: One sentence: what is wrong.
        framework: Name of the framework's package.
        version: Its installed version.
        tried: The versions that milepost has been tested with.
        **facts: As for `MilepostError`. The ``key`` is the name that is gone, if that is known.
    """

    name: str | None = None  # not that of ImportError, which copies and pickles lose

    def __init__(self, problem: str, *, framework: str = "", version: str = "", tried: str = "", **facts: Any) -> None:
        super().__init__(problem, **facts)
        self.framework = framework
        self.version = version
        self.tried = tried
        self.name = facts.get("key")


class CoordinationError(MilepostError, RuntimeError):
    """The processes of a program did not save or restore together: one of them failed, did not answer, or did something else.

    Attributes:
        is_lost: Whether a process did not answer in time, or cannot be reached.
    """

    is_lost = False


class InProgressError(MilepostError, RuntimeError):
    """Another save or restore of the same objects is in progress: this one was begun inside it, or has waited too long for another thread."""


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
    """The checkpoint is saved and can be restored, but a later step of the save failed.

    The message says which: the checkpoint may not survive a power cut, or the state file of its directory does not list
    it yet. If the disk fails at the commit point and cannot be read after it, the message says that nothing tells whether the checkpoint is
    saved. Its number is used. The process can continue to save; do not save this checkpoint again.
    """


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """While a part of milepost is imported that is first used here. The system may refuse to open its file, or to list a directory.

    Raises:
        StorageError: The system has refused it.
    """
    try:
        yield
    except MilepostError:
        raise
    except (ImportError, OSError) as error:
        code = error.errno if isinstance(error, OSError) else None
        raise StorageError(
            "cannot import a part of milepost that is first used here" + (f": {os.strerror(code)}" if code else ""),
            errno=code,
            found=f"{type(error).__name__}: {error}",
            remedy="close files that are no longer needed, or raise the limit of open files (ulimit -n); "
            "if milepost is damaged, install it again",
        ) from error


def import_if_possible(name: str) -> Any:
    """A module that only makes a message better; None if the system refuses to open its file, or does not list where it is.

    Args:
        name: The module.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, OSError):
        return None


class MilepostWarning(UserWarning):
    """Base of all warnings that milepost issues."""


class UntrackedWarning(MilepostWarning):
    """An object that may hold state will not be saved."""


class UnrestoredWarning(MilepostWarning):
    """Saved values were not restored to any object, or live values were not in the checkpoint."""


class SkippedCheckpointWarning(MilepostWarning):
    """A damaged or missing checkpoint was skipped, and an older one is used."""


_OWN_CODE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


class ProgramLine(NamedTuple):
    """A line of a program: its file, its number and its module."""

    filename: str
    line: int
    module: str


def user_place() -> ProgramLine:
    """The line of the user's program that is running now, as `warn` finds it. For warnings that are issued later."""
    frame = _user_frame(sys._getframe(1))
    return ProgramLine(frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__", "__main__"))


def warn(message: str, category: type[Warning] = MilepostWarning, place: ProgramLine | None = None) -> None:
    """Issues a warning that points at a line of the user's program.

    This is the innermost line that belongs neither to milepost nor to an installed library. If there is none, as on a
    thread of milepost's own, it is the innermost line that does not belong to milepost.

    Args:
        message: What is wrong, and what to do.
        category: The class of the warning.
        place: The line to point at instead.

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


@functools.cache
def _installed() -> tuple[str, ...]:
    """The directories of Python's library and of installed libraries."""
    sysconfig = import_if_possible("sysconfig")  # only restores and warnings need it
    if sysconfig is None:
        return (os.path.dirname(os.__file__) + os.sep,)
    return tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _user_frame(frame: FrameType) -> FrameType:
    installed = _installed()
    outside: FrameType | None = None
    current_frame: FrameType | None = frame
    while current_frame is not None:
        file = current_frame.f_code.co_filename
        if not file.startswith(_OWN_CODE):
            if not file.startswith(installed) and not file.startswith("<frozen"):
                return current_frame
            outside = outside or current_frame
        current_frame = current_frame.f_back
    return outside or frame
