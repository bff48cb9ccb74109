"""The text of a state file, which lists the checkpoints of a directory.

A state file is a protocol buffer message in text format, which milepost writes in this form::

    state file := "model_checkpoint_path: " path  {listed}  {time}  ("last_preserved_timestamp: " seconds)?
    listed     := "all_model_checkpoint_paths: " path           a checkpoint that is managed; the oldest is first
    time       := "all_model_checkpoint_timestamps: " seconds   when it was saved, for each of them
    path       := '"' text with the escapes of C '"'
    seconds    := decimal number                                since the epoch

Each field is in a line of its own. The first is the latest checkpoint. The last is the time when the last preserved checkpoint was
saved, which is kept, but not listed any more. The text format has other forms, which are read too. Source: TensorFlow 2.21,
``tensorflow/python/training/checkpoint_state.proto``. Text outside ASCII is written as it is, as protobuf 7 does; octal escapes, as
written by protobuf 4, are read too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import text_encoding, text_format

from milepost.coding.messagepack import MAP_BEGINNINGS
from milepost.coding.protobuf import Field, declare
from milepost.coding.utf8 import utf8
from milepost.errors import StateFileError

# The patterns are compiled when the first state file is read, because many programs only write one.
_PLAIN: Final = (
    r'(?:(?:model_checkpoint_path|all_model_checkpoint_paths): "[^"\\\x00-\x1f\x7f]*"\n'
    r"|(?:all_model_checkpoint_timestamps|last_preserved_timestamp): [0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?\n)+"
)
"""The form of nearly all state files. The parser of protobuf reads the others, and is far slower."""
_PLAIN_LATEST: Final = r'(?m)^model_checkpoint_path: "(.*)"$'
_PLAIN_PATH: Final = r'(?m)^all_model_checkpoint_paths: "(.*)"$'
_PLAIN_TIMESTAMP: Final = r"(?m)^all_model_checkpoint_timestamps: (.*)$"
_PLAIN_PRESERVED: Final = r"(?m)^last_preserved_timestamp: (.*)$"
_ESCAPE: Final = r"(?s)\\([4-7][0-7]{2}|.)"
_KNOWN_ESCAPES: Final = frozenset("abfnrtvxuUN\\'\"01234567")
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
    if data[:1] in MAP_BEGINNINGS:
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
    try:
        text = data.decode()
        if (state := _parse_plain(text)) is not None and state.model_checkpoint_path:
            return state
        message = _message_class()()
        text_format.Merge(re.sub(_ESCAPE, _with_known_escape, text), message)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise not_understood(file, line, "text in UTF-8", f"byte {data[error.start]:#04x}") from None
    except text_format.ParseError as error:
        raise not_understood(file, error.GetLine(), "a state file in text format", _said(error)) from None
    if not message.model_checkpoint_path:
        # TensorFlow renames the file before its content is on the disk, so a crash can leave an empty one
        found = "an empty file" if not data.strip(b"\0 \n") else "none"
        raise not_understood(file, None, "a model_checkpoint_path", found)
    return CheckpointState(
        message.model_checkpoint_path,
        tuple(message.all_model_checkpoint_paths),
        tuple(message.all_model_checkpoint_timestamps),
        message.last_preserved_timestamp,
    )


@functools.cache
def _message_class() -> Any:
    """The class of the messages. It is declared when a state file is read that does not have the usual form."""
    return declare(
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


def check_encodable(path: str) -> None:
    """Checks that a state file can hold the path of a checkpoint.

    Raises:
        StateFileError: The path has no UTF-8 form.
    """
    if utf8(path) is None:
        raise StateFileError(
            "a state file cannot hold this path",
            expected="a path that is UTF-8",
            found=ascii(path),
            remedy="rename the directory, or save without a state file, by `write`",
        )


# cached, because a list of thousands of checkpoints is written again after every save


@functools.lru_cache(maxsize=1 << 14)
def _escaped(path: str) -> str:
    check_encodable(path)
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
    if not re.fullmatch(_PLAIN, text):
        return None
    latest, preserved = re.findall(_PLAIN_LATEST, text), re.findall(_PLAIN_PRESERVED, text)
    return CheckpointState(
        latest[-1] if latest else "",
        tuple(re.findall(_PLAIN_PATH, text)),
        tuple(map(float, re.findall(_PLAIN_TIMESTAMP, text))),
        float(preserved[-1]) if preserved else 0.0,
    )


def _said(error: text_format.ParseError) -> str:
    """The message of the parser, without milepost's internal name of the message type."""
    return str(error).replace("milepost.formats.", "")[:200]


def not_understood(file: str, line: int | None, expected: str, found: str) -> StateFileError:
    """The error for a state file that is malformed, perhaps in one line of it."""
    position = "" if line is None else f", line {line}"
    return StateFileError(
        f"the state file is malformed{position}", file=file, expected=expected, found=found, remedy=_REMEDY
    )
