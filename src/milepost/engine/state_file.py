"""The state file of a directory. Its name is ``checkpoint``, and it names the latest checkpoint and all managed ones.

It is a protocol buffer message in text format, which milepost writes in this form::

    state file := "model_checkpoint_path: " path  {listed}  {time}  ("last_preserved_timestamp: " seconds)?
    listed     := "all_model_checkpoint_paths: " path           a checkpoint that is managed; the oldest is first
    time       := "all_model_checkpoint_timestamps: " seconds   when it was saved, for each of them
    path       := '"' text with the escapes of C '"'
    seconds    := decimal number                                since the epoch

Each field is in a line of its own. The first is the latest checkpoint. The last is the time when the last preserved checkpoint was
saved, which is kept, but not listed any more. The text format has other forms, which are read too. Source: TensorFlow 2.21,
``tensorflow/python/training/checkpoint_state.proto``. Text outside ASCII is written as it is, as protobuf 7 does; octal escapes, as
written by protobuf 4, are read too.

Paths in the file are relative to its directory, or absolute, with ``/`` between names on every system; on Windows ``\\``, as
TensorFlow writes there, is read too. In memory they are joined to the directory as the caller passed it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import text_encoding, text_format

from milepost.coding.protobuf import Field, declare
from milepost.engine.commit import commit_file
from milepost.errors import CheckpointNotFoundError, StateFileError, UnsupportedError, warn
from milepost.storage import LocalStorage, Storage
from milepost.storage.checked import checked, unchecked
from milepost.storage.paths import (
    check_local,
    has_directory,
    plain_path,
    relative_path,
    with_own_separators,
    with_slashes,
)

STATE_FILE: Final = "checkpoint"
"""The name that TensorFlow gives the file."""

PathLike = str | os.PathLike[str]

_MOST_BYTES: Final = 64 << 20
"""Enough for half a million checkpoints. A larger file is something else."""

_Message: Final[Any] = declare(
    "checkpoint_state",
    {
        "CheckpointState": [
            Field("model_checkpoint_path", 1, "string"),
            Field("all_model_checkpoint_paths", 2, "string", repeated=True),
            Field("all_model_checkpoint_timestamps", 3, "double", repeated=True),
            Field("last_preserved_timestamp", 4, "double"),
        ]
    },
)["CheckpointState"]

_PLAIN: Final = re.compile(
    r'(?:(?:model_checkpoint_path|all_model_checkpoint_paths): "[^"\\\x00-\x1f\x7f]*"\n'
    r"|(?:all_model_checkpoint_timestamps|last_preserved_timestamp): [0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?\n)+"
)
"""The form of nearly all state files. The parser of protobuf reads the others, and is far slower."""
_PLAIN_LATEST: Final = re.compile(r'^model_checkpoint_path: "(.*)"$', re.MULTILINE)
_PLAIN_PATH: Final = re.compile(r'^all_model_checkpoint_paths: "(.*)"$', re.MULTILINE)
_PLAIN_TIMESTAMP: Final = re.compile(r"^all_model_checkpoint_timestamps: (.*)$", re.MULTILINE)
_PLAIN_PRESERVED: Final = re.compile(r"^last_preserved_timestamp: (.*)$", re.MULTILINE)

_ESCAPE: Final = re.compile(r"\\([4-7][0-7]{2}|.)", re.DOTALL)
_KNOWN_ESCAPES: Final = frozenset("abfnrtvxuUN\\'\"01234567")
_MAPS: Final = frozenset(bytes([first]) for first in (*range(0x80, 0x90), 0xDE, 0xDF))
"""The first bytes of a map in MessagePack. No text in UTF-8 begins with them."""
_REMEDY: Final = (
    "repair the file, or delete it and name the latest checkpoint with update_checkpoint_state; without one, training "
    "would start anew"
)


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The content of a state file.

    Attributes:
        model_checkpoint_path: The latest checkpoint.
        all_model_checkpoint_paths: All managed checkpoints, oldest first.
        all_model_checkpoint_timestamps: When each was saved, in seconds since the epoch. It may be empty.
        last_preserved_timestamp: When the last preserved checkpoint was saved; 0 if there is none.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: Sequence[str] = ()
    all_model_checkpoint_timestamps: Sequence[float] = ()
    last_preserved_timestamp: float = 0.0

    def __post_init__(self) -> None:
        # Lists, as in TensorFlow's message.
        object.__setattr__(self, "all_model_checkpoint_paths", list(self.all_model_checkpoint_paths))
        object.__setattr__(self, "all_model_checkpoint_timestamps", list(self.all_model_checkpoint_timestamps))

    def newest_first(self) -> list[str]:
        """All paths, each once: the latest checkpoint first, then the others from new to old.

        Example:
            >>> CheckpointState("b", ("a", "b")).newest_first()
            ['b', 'a']
        """
        return list(dict.fromkeys((self.model_checkpoint_path, *reversed(self.all_model_checkpoint_paths))))


def parse_state(data: bytes, file: str) -> CheckpointState:
    """Parses the text of a state file.

    Args:
        data: The text.
        file: The path of the file, for errors.

    Raises:
        StateFileError: The text is malformed.

    Example:
        >>> parse_state(b"model_checkpoint_path: 'ckpt-' \\"1\\"  # the latest", "checkpoint").model_checkpoint_path
        'ckpt-1'
    """
    if data[:1] in _MAPS:
        raise StateFileError(
            "this is not a state file of checkpoints, but a MessagePack file of Orbax or Flax",
            file=file,
            expected="text that names checkpoints",
            found=f"bytes that begin with {data[:8]!r}",
            remedy=(
                "keep it: it is part of what they saved; restore that with Checkpoint.restore() of its directory, and keep "
                "checkpoints of milepost in a directory of their own"
            ),
        )
    message = _Message()
    try:
        text = data.decode()
        if (state := _parse_plain(text)) is not None and state.model_checkpoint_path:
            return state
        text_format.Merge(_ESCAPE.sub(_with_known_escape, text), message)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _not_understood(file, line, "text in UTF-8", f"byte {data[error.start]:#04x}") from None
    except text_format.ParseError as error:
        raise _not_understood(file, error.GetLine(), "a state file in text format", _said(error)) from None
    if not message.model_checkpoint_path:
        # TensorFlow renames the file before its content is on the disk, so a crash can leave an empty one
        found = "an empty file" if not data.strip(b"\0 \n") else "none"
        raise _not_understood(file, None, "a model_checkpoint_path", found)
    return CheckpointState(
        message.model_checkpoint_path,
        tuple(message.all_model_checkpoint_paths),
        tuple(message.all_model_checkpoint_timestamps),
        message.last_preserved_timestamp,
    )


def format_state(state: CheckpointState) -> bytes:
    """Makes the text of a state file.

    Raises:
        StateFileError: A path has no UTF-8 form.

    Example:
        >>> print(format_state(CheckpointState("ckpt-1", ("ckpt-1",))).decode(), end="")
        model_checkpoint_path: "ckpt-1"
        all_model_checkpoint_paths: "ckpt-1"
    """
    lines = [f'model_checkpoint_path: "{_escaped(state.model_checkpoint_path)}"']
    lines += [f'all_model_checkpoint_paths: "{_escaped(path)}"' for path in state.all_model_checkpoint_paths]
    lines += map(_timestamp_line, state.all_model_checkpoint_timestamps)
    if state.last_preserved_timestamp:
        lines.append(f"last_preserved_timestamp: {float(state.last_preserved_timestamp)}")
    return ("\n".join(lines) + "\n").encode()


def check_recordable(path: str) -> None:
    """Checks that a state file can hold the path of a checkpoint, and does not have this path itself.

    Raises:
        StateFileError: The path has no UTF-8 form.
        UnsupportedError: The path is that of the state file.
    """
    if os.path.basename(path) == STATE_FILE:
        raise UnsupportedError(
            "a checkpoint that is listed cannot have the name of the state file",
            file=path,
            expected=f"another name than {STATE_FILE}",
            remedy="save under another name",
        )
    try:
        path.encode()
    except UnicodeEncodeError:
        raise StateFileError(
            "a state file cannot hold this path",
            expected="a path that is UTF-8",
            found=ascii(path),
            remedy="rename the directory, or save without a state file, by `write`",
        ) from None


# cached, because a list of thousands of checkpoints is written again after every save


@functools.lru_cache(maxsize=1 << 14)
def _escaped(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        check_recordable(path)
    text: str = text_encoding.CEscape(path, as_utf8=True)  # type: ignore[arg-type]  # the function accepts text too
    return text


@functools.lru_cache(maxsize=1 << 14)
def _timestamp_line(timestamp: float) -> str:
    return f"all_model_checkpoint_timestamps: {float(timestamp)}"


def _with_known_escape(escape: re.Match[str]) -> str:
    """An escape as it stands, or one that means the backslash itself if there is no such escape.

    protobuf would give that to Python, which reads it in the same way and warns.
    """
    if len(escape[1]) > 1:
        line = escape.string.count("\n", 0, escape.start()) + 1
        raise text_format.ParseError(f"the escape {escape[0]} is more than a byte", line)
    return escape[0] if escape[1] in _KNOWN_ESCAPES else f"\\{escape[0]}"


@functools.lru_cache(maxsize=4)  # a program that waits for checkpoints reads the same text many times
def _parse_plain(text: str) -> CheckpointState | None:
    """The state in a text of the usual form. None if the parser of protobuf must read the text."""
    if not _PLAIN.fullmatch(text):
        return None
    latest, preserved = _PLAIN_LATEST.findall(text), _PLAIN_PRESERVED.findall(text)
    return CheckpointState(
        latest[-1] if latest else "",
        tuple(_PLAIN_PATH.findall(text)),
        tuple(map(float, _PLAIN_TIMESTAMP.findall(text))),
        float(preserved[-1]) if preserved else 0.0,
    )


def get_checkpoint_state(
    checkpoint_dir: PathLike, latest_filename: str | None = None, *, storage: Storage | None = None
) -> CheckpointState | None:
    """Reads the state file of a directory.

    TensorFlow treats a malformed file as if there were none, so that training starts over without a message. This raises an
    error.

    Args:
        checkpoint_dir: The directory.
        latest_filename: Name of the state file; by default ``checkpoint``.
        storage: Where the directory is; by default on this machine.

    Returns:
        The state, with relative paths joined to ``checkpoint_dir``. None if there is no state file.

    Raises:
        StateFileError: A ``ValueError``: the file is malformed.
        StorageError: The file cannot be read.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> update_checkpoint_state(directory, "ckpt-1")
        >>> get_checkpoint_state(directory).model_checkpoint_path == directory + "/ckpt-1"
        True
    """
    directory = plain_path(checkpoint_dir)
    data = read_state_file(checked(storage), directory, latest_filename)
    if data is None:
        return None
    state = parse_state(data, _state_path(directory, latest_filename))
    start = os.path.join(directory, "")

    def joined(path: str) -> str:
        return os.path.join(directory, with_own_separators(path)) if has_directory(path) else start + path

    return CheckpointState(
        joined(state.model_checkpoint_path),
        tuple(map(joined, state.all_model_checkpoint_paths)),
        state.all_model_checkpoint_timestamps,
        state.last_preserved_timestamp,
    )


def read_state_file(storage: Storage, directory: str, latest_filename: str | None = None) -> bytes | None:
    """The text of the state file of a directory. None if there is no state file.

    Raises:
        StateFileError: The file is too large to be a state file.
        StorageError: The file cannot be read.
    """
    path = _state_path(directory, latest_filename)
    if storage.is_directory(path):
        warn(
            f"{path} is a directory and not a state file, so no checkpoints are listed: rename it, or save to another directory"
        )
        return None
    try:
        file = storage.open(path)
    except CheckpointNotFoundError:
        return None
    try:
        if file.size > _MOST_BYTES:
            raise _not_understood(path, None, f"at most {_MOST_BYTES} bytes", f"{file.size} bytes")
        return file.read(0, file.size)
    finally:
        file.close()


def update_checkpoint_state(
    save_dir: PathLike,
    model_checkpoint_path: PathLike,
    all_model_checkpoint_paths: Iterable[PathLike] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
    *,
    storage: Storage | None = None,
) -> None:
    """Writes the state file of a directory, atomically and durably, as ``tf.compat.v1.train`` does.

    If ``save_dir`` is relative, relative paths must begin with it, and are written relative to it. All other paths are written
    as they are.

    Args:
        save_dir: The directory.
        model_checkpoint_path: The latest checkpoint.
        all_model_checkpoint_paths: All checkpoints, oldest first. The latest is added if it is not the last.
        latest_filename: Name of the state file; by default ``checkpoint``.
        all_model_checkpoint_timestamps: When each of ``all_model_checkpoint_paths`` was saved, in seconds since the epoch.
        last_preserved_timestamp: When the last preserved checkpoint was saved.
        storage: Where the directory is; by default on this machine.

    Raises:
        ValueError: The number of timestamps is not that of the paths.
        RuntimeError: The latest checkpoint has the path of the state file.
        StateFileError: A path has no UTF-8 form.
        StorageError: The file cannot be written. The existing one is unchanged.
        UnsupportedError: A path is a URL or begins with ``~``, and the storage is that of this machine.

    Example:
        >>> import tempfile
        >>> directory = tempfile.mkdtemp()
        >>> update_checkpoint_state(directory, "ckpt-2", ["ckpt-1"])
        >>> print(open(directory + "/checkpoint").read(), end="")
        model_checkpoint_path: "ckpt-2"
        all_model_checkpoint_paths: "ckpt-1"
        all_model_checkpoint_paths: "ckpt-2"
    """
    storage = checked(storage)
    directory, latest = plain_path(save_dir), plain_path(model_checkpoint_path)
    paths = [plain_path(path) for path in all_model_checkpoint_paths or ()]
    if not paths or paths[-1] != latest:
        paths.append(latest)
    if isinstance(unchecked(storage), LocalStorage):
        for path in paths:
            check_local(path)
    timestamps = tuple(all_model_checkpoint_timestamps or ())
    if timestamps and len(timestamps) != len(paths):
        raise ValueError(f"{len(timestamps)} timestamps for {len(paths)} checkpoint paths: {timestamps}, {paths}")

    def written(path: str) -> str:
        return with_slashes(path if os.path.isabs(directory) or os.path.isabs(path) else relative_path(path, directory))

    state = CheckpointState(written(latest), tuple(map(written, paths)), timestamps, last_preserved_timestamp or 0.0)
    _write(directory, state, latest_filename, storage)


def record_state(
    directory: PathLike, state: CheckpointState, latest_filename: str | None = None, *, storage: Storage | None = None
) -> bytes:
    """Writes the state file of a directory, atomically and durably, with all paths relative to the directory.

    Such a directory can be moved.

    Args:
        directory: The directory.
        state: What to write, with paths as `get_checkpoint_state` gives them, beginning with ``directory`` or absolute.
        latest_filename: Name of the state file; by default ``checkpoint``.
        storage: Where the directory is; by default on this machine.

    Returns:
        The text of the file.

    Raises:
        RuntimeError: The latest checkpoint has the path of the state file.
        StateFileError: A path has no UTF-8 form.
        StorageError: The file cannot be written. The existing one is unchanged.
    """
    directory = plain_path(directory)
    start = os.path.join(directory, "")

    def relative(path: str) -> str:
        inside = path.removeprefix(start)
        if len(inside) < len(path) and not has_directory(inside):
            return inside
        return with_slashes(relative_path(path, directory))

    return _write(
        directory,
        CheckpointState(
            relative(state.model_checkpoint_path),
            tuple(map(relative, state.all_model_checkpoint_paths)),
            state.all_model_checkpoint_timestamps,
            state.last_preserved_timestamp,
        ),
        latest_filename,
        storage,
    )


def _write(directory: str, state: CheckpointState, latest_filename: str | None, storage: Storage | None) -> bytes:
    path = _state_path(directory, latest_filename)
    if os.path.normpath(os.path.join(directory, state.model_checkpoint_path)) == os.path.normpath(path):
        raise RuntimeError(f"a checkpoint cannot have the path of the state file, {path}; save under another name")
    storage = checked(storage)
    if storage.is_directory(path):
        raise StateFileError(
            "a directory has the name of the state file",
            file=path,
            expected="a file",
            found="a directory",
            remedy="rename that directory, or save checkpoints to another one",
        )
    text = format_state(state)
    commit_file(storage, path, text)
    return text


def _state_path(directory: str, latest_filename: str | None) -> str:
    return os.path.join(directory, latest_filename or STATE_FILE)


def _said(error: text_format.ParseError) -> str:
    """The message of the parser, without milepost's internal name of the message type."""
    return str(error).replace("milepost.formats.", "")[:200]


def _not_understood(file: str, line: int | None, expected: str, found: str) -> StateFileError:
    where = "" if line is None else f", line {line}"
    return StateFileError(
        f"the state file is malformed{where}", file=file, expected=expected, found=found, remedy=_REMEDY
    )
