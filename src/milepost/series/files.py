r"""Files that are saved with a checkpoint, in the same commit, such as those of a tokenizer.

Each file is one tensor of the checkpoint, of uint8 and one dimension. So it has a checksum, and is deleted, copied and verified with the checkpoint. No
object of the program has such a key. ::

    key of a file := FILES name
    name          := part {"/" part}      what the program calls the file, at most 4,096 bytes of UTF-8
    part          := 1 to 255 bytes of UTF-8 without "/", "\", ":" after one letter, and control characters; neither "." nor ".."

So a name means a file below a directory on every system. No name is a directory of another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from milepost.bundle import BundleReader
from milepost.coding.utf8 import utf8
from milepost.errors import CorruptCheckpointError, MilepostError, UnsupportedError
from milepost.graph.keys import FILES
from milepost.tensor import DType

MOST_BYTES: Final = 256 << 20
"""The most bytes of all files of one checkpoint."""
UINT8: Final = DType.of("uint8")
_LONGEST_NAME: Final = 4096
_LONGEST_PART: Final = 255
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_NOT_IN_NAMES: Final = re.compile(r"[\\\x00-\x1f\x7f]")


def problem_of_name(name: str) -> str | None:
    """Why a file cannot have a name; None if it can.

    Example:
        >>> problem_of_name("tokenizer/vocab.json") is None, problem_of_name("a/../b")
        (True, "a part of it is '..'")
    """
    encoded = utf8(name)
    if encoded is None:
        return "it is not text that UTF-8 can hold"
    if len(encoded) > _LONGEST_NAME:
        return f"it has {len(encoded):,} bytes, and at most {_LONGEST_NAME:,} are allowed"
    if wrong := _NOT_IN_NAMES.search(name):
        return f"it has the character {wrong[0]!r}"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return f"a part of it is {part!r}"
        if len(part.encode()) > _LONGEST_PART:
            return f"a part of it has more than {_LONGEST_PART} bytes"
        if _DRIVE.match(part):
            return f"a part of it begins like a drive of Windows, {part[:2]!r}"
    return None


def name_that_is_a_directory(names: Collection[str]) -> str | None:
    """The first name that is a directory of another name, so that no directory can hold both; None if there is none.

    Example:
        >>> name_that_is_a_directory(["a", "b", "a/c"]), name_that_is_a_directory(["a", "b/c"])
        ('a', None)
    """
    directories = {name[: each.start()] for name in names for each in re.finditer("/", name)}
    return min(directories.intersection(names), default=None)


def file_sizes(reader: BundleReader) -> dict[str, int]:
    """The names of the files of an open checkpoint, sorted, with their sizes in bytes. Only the index is read.

    Raises:
        CorruptCheckpointError: A tensor is not that of a file, or its name is not that of one.
    """
    keys = sorted(key for key in reader.keys() if key.startswith(FILES)) if reader.origin.is_checkpoint else []  # noqa: SIM118 - a reader is not a mapping
    sizes: dict[str, int] = {}
    for key in keys:
        name, spec = key.removeprefix(FILES), reader.spec(key)
        problem = problem_of_name(name)
        if problem is None and (spec.dtype != UINT8 or len(spec.shape) != 1):
            problem = f"its tensor is {spec}"
        if problem is not None:
            raise CorruptCheckpointError(
                f"a file that is saved with the checkpoint is malformed: {problem}",
                key=key,
                file=reader.prefix,
                expected="the name of a file below a directory, and its bytes as uint8",
            )
        sizes[name] = spec.shape[0]
    if above := name_that_is_a_directory(sizes):
        raise CorruptCheckpointError(
            "a file that is saved with the checkpoint is the directory of another one",
            key=FILES + above,
            file=reader.prefix,
        )
    return sizes


def read_files(reader: BundleReader) -> dict[str, bytes]:
    """The files of an open checkpoint, by name.

    Raises:
        CorruptCheckpointError: Their bytes are damaged, or `file_sizes` raises it.
        UnsupportedError: They have more than `MOST_BYTES` bytes.
    """
    sizes = file_sizes(reader)
    if sum(sizes.values()) > MOST_BYTES:
        raise UnsupportedError(
            "the files of this checkpoint are too large to be read into memory",
            file=reader.prefix,
            expected=f"at most {MOST_BYTES:,} bytes, which is the most that milepost saves",
            found=f"{sum(sizes.values()):,} bytes",
            remedy="read each of them by its key, with milepost.load_checkpoint(path).get_tensor(key)",
        )
    try:
        return {name: reader.read(FILES + name).tobytes() for name in sizes}
    except MilepostError as error:
        raise error.with_context(file=reader.prefix) from None
