"""Names of the files of a checkpoint, and the search for a checkpoint by the path that a user gives.

::

    P.index                     V2: the index of the checkpoint with the prefix P
    P.data-SSSSS-of-NNNNN       V2: data shard S of N, decimal, padded to five digits, S from 0
    P                           V1: the whole checkpoint
    P-SSSSS-of-NNNNN            V1: shard S of N; TensorFlow 1 calls all of them P-?????-of-NNNNN
    P.meta                      TensorFlow 1: a graph, no values

Source: TensorFlow 2.21, ``tensorflow/core/util/tensor_bundle/naming.cc`` and ``python/training/saver.py``. A prefix is
a plain name: ``[``, ``?`` and ``*`` in it have no meaning.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from milepost.errors import CheckpointNotFoundError, import_if_possible
from milepost.storage import LocalStorage, Storage
from milepost.storage.checked import unchecked
from milepost.storage.paths import plain_path

INDEX_SUFFIX: Final = ".index"

_DATA: Final = re.compile(r"(.*)\.data-(\d{5,})-of-(\d{5,})", re.DOTALL)
_V1_SHARD: Final = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})", re.DOTALL)
_V1_PATTERN: Final = re.compile(r"(.*)-\?{5}-of-(\d{5,})", re.DOTALL)
_MOST_SUGGESTIONS: Final = 5
_MOST_COMPARED: Final = 5000
"""The largest number of names that are compared with one that does not exist."""


class DataFile(NamedTuple):
    """The parts of the name of a data file.

    Attributes:
        prefix: The prefix of its checkpoint.
        shard: The number of the shard.
        shards: The number of shards in the checkpoint.
    """

    prefix: str
    shard: int
    shards: int


class Location(NamedTuple):
    """The files that list the content of a checkpoint.

    Attributes:
        prefix: The checkpoint's prefix.
        version: 2, or 1 for the format before TensorFlow 0.12.
        files: The index (V2), or all files (V1).
    """

    prefix: str
    version: int
    files: tuple[str, ...]


def index_path(prefix: str) -> str:
    """The index file of a checkpoint.

    Example:
        >>> index_path("run/ckpt-1")
        'run/ckpt-1.index'
    """
    return prefix + INDEX_SUFFIX


def data_path(prefix: str, shard: int, shards: int) -> str:
    """A data file of a checkpoint.

    Example:
        >>> data_path("run/ckpt-1", 0, 2)
        'run/ckpt-1.data-00000-of-00002'
    """
    return f"{prefix}.data-{shard:05}-of-{shards:05}"


def parse_data_path(path: str) -> DataFile | None:
    """Parses a path that `data_path` returned. None if the path is not one that `data_path` returns.

    Example:
        >>> parse_data_path("run/ckpt-1.data-00000-of-00002")
        DataFile(prefix='run/ckpt-1', shard=0, shards=2)
    """
    match = _DATA.fullmatch(path)
    if match is None:
        return None
    data_file = DataFile(match[1], int(match[2]), int(match[3]))
    return data_file if data_file.shard < data_file.shards and data_path(*data_file) == path else None


def find_prefixes(storage: Storage, directory: str) -> list[str]:
    """The prefixes of the V2 checkpoints in a directory, in the order of their numbers.

    Args:
        storage: Where the directory is.
        directory: The directory. One that does not exist has no checkpoints.
    """
    prefixes = [
        os.path.join(directory, name.removesuffix(INDEX_SUFFIX))
        for name in storage.list(directory)
        if name.endswith(INDEX_SUFFIX)
    ]
    return sorted(prefixes, key=_by_number)


def locate(storage: Storage, path: str | os.PathLike[str]) -> Location:
    """Finds the checkpoint of a path.

    The path of an index is accepted as its prefix.

    Args:
        storage: Where the checkpoint is.
        path: A prefix.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint. The error says what to pass instead.
    """
    prefix = plain_path(path)
    if storage.is_file(index_path(prefix)):
        return Location(prefix, 2, (index_path(prefix),))
    if storage.is_file(prefix):
        if prefix.endswith(INDEX_SUFFIX):
            return Location(prefix.removesuffix(INDEX_SUFFIX), 2, (prefix,))
        _refuse_part(storage, prefix)
        return Location(prefix, 1, (prefix,))
    if shards := v1_shards(storage, prefix):
        return Location(prefix, 1, shards)
    raise _not_found(storage, prefix)


def _by_number(prefix: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)([0-9]{1,18})", prefix, re.DOTALL)
    return (match[1], int(match[2])) if match else (prefix, -1)


def v1_shards(storage: Storage, prefix: str) -> tuple[str, ...]:
    """The files of a V1 checkpoint in shards. Empty if some are missing, or there are several sets of them."""
    pattern = _V1_PATTERN.fullmatch(prefix)
    directory, name = os.path.split(pattern[1] if pattern else prefix)
    files_by_count: dict[int, list[str]] = {}
    for other in storage.list(directory):
        shard = _V1_SHARD.fullmatch(other)
        if shard and shard[1] == name:
            files_by_count.setdefault(int(shard[3]), []).append(os.path.join(directory, other))
    complete = [
        tuple(sorted(files))
        for count, files in files_by_count.items()
        if len(files) == count and (pattern is None or count == int(pattern[2]))
    ]
    return complete[0] if len(complete) == 1 else ()


def _refuse_part(storage: Storage, path: str) -> None:
    if data := parse_data_path(path):
        what, prefix = "this is a data file of a checkpoint, not the checkpoint's prefix", data.prefix
    elif path.endswith(".meta"):
        what, prefix = "this is the graph file of a checkpoint, not the checkpoint's prefix", path.removesuffix(".meta")
    elif os.path.basename(path) == "checkpoint":
        raise CheckpointNotFoundError(
            "this is the state file of a directory, not a checkpoint",
            file=path,
            expected="a prefix",
            remedy=f"pass latest_checkpoint({os.path.dirname(path) or '.'!r})",
        )
    else:
        return
    if storage.is_file(index_path(prefix)) or storage.is_file(prefix):
        remedy = f"pass {prefix!r}"
    else:
        remedy = f"its checkpoint {prefix!r} has no index: it was never finished, or was removed"
    raise CheckpointNotFoundError(what, file=path, expected="a prefix", remedy=remedy)


def _not_found(storage: Storage, prefix: str) -> CheckpointNotFoundError:
    if storage.is_directory(prefix):
        return _directory_given(storage, prefix)
    directory, name = os.path.split(prefix)
    if storage.is_file(directory):
        return CheckpointNotFoundError(
            "no checkpoint: what would be its directory is a file",
            file=prefix,
            expected=f"a directory {directory}",
            found=f"a file {directory}",
            remedy=f"check the path; if {directory!r} is the checkpoint, pass it alone",
        )
    if not storage.is_directory(directory or "."):
        remedy = "check the path"
        if isinstance(unchecked(storage), LocalStorage):
            remedy += "; if the checkpoint is not on this machine, pass its storage, as storage= or CheckpointOptions(storage=...)"
        return CheckpointNotFoundError(
            "no checkpoint: its directory does not exist",
            file=prefix,
            expected=f"a directory {directory}",
            remedy=remedy,
        )
    if any((data := parse_data_path(other)) and data.prefix == name for other in storage.list(directory)):
        return CheckpointNotFoundError(
            "no checkpoint: its data exists, but not its index",
            file=prefix,
            expected=index_path(prefix),
            remedy="the save did not finish, or the index was removed; use another checkpoint",
        )
    if os.path.basename(index_path(prefix)) in storage.list(directory):
        return CheckpointNotFoundError(
            "no checkpoint: what has the name of its index is not a file",
            file=prefix,
            expected=index_path(prefix),
            found="a directory" if storage.is_directory(index_path(prefix)) else "neither a file nor a directory",
            remedy="pass another path, or copy the checkpoint there again",
        )
    if name in storage.list(directory) and not (storage.is_file(prefix) or storage.is_directory(prefix)):
        return CheckpointNotFoundError(
            "this is neither a file nor a directory",
            file=prefix,
            found="a device, a pipe or a link to what is not there",
            remedy="write what comes from a pipe to a file, and pass that file",
        )
    others = find_prefixes(storage, directory)
    numbered = [other for other in others if re.fullmatch(re.escape(prefix) + "-[0-9]+", other)]
    if numbered:
        remedy = f"`save` adds a number to the prefix; pass one of: {_some(numbered)}"
    elif any(_by_number(other)[0] == _by_number(prefix)[0] for other in others if _by_number(prefix)[1] >= 0):
        remedy = f"pass one of those in this directory: {_some(others)}"
    elif close := _alike(storage, directory, name, others):
        remedy = f"did you mean {' or '.join(map(repr, close))}?"
    elif others:
        remedy = f"pass one of those in this directory: {_some(others)}"
    else:
        remedy = "check the path: its directory holds nothing of a similar name"
    return CheckpointNotFoundError(
        "no such checkpoint, file or directory", file=prefix, expected=index_path(prefix), remedy=remedy
    )


def _alike(storage: Storage, directory: str, name: str, prefixes: list[str]) -> list[str]:
    """The paths of what a directory holds under similar names. Of checkpoints they are the prefixes."""
    difflib = import_if_possible("difflib")  # only errors need it
    if difflib is None:
        return []
    names = [os.path.basename(prefix) for prefix in prefixes]
    names += [
        other
        for other in storage.list(directory)[:_MOST_COMPARED]
        if not other.endswith((INDEX_SUFFIX, ".meta", ".tmp"))
        and parse_data_path(other) is None
        and other != "checkpoint"
    ]
    return [os.path.join(directory, other) for other in difflib.get_close_matches(name, dict.fromkeys(names))]


def _directory_given(storage: Storage, directory: str) -> CheckpointNotFoundError:
    saved_model = os.path.join(directory, "variables", "variables")
    if inside := find_prefixes(storage, directory):
        remedy = f"pass latest_checkpoint({directory!r}), or one of: {_some(inside)}"
    elif storage.is_file(index_path(saved_model)):
        remedy = f"it is a SavedModel, whose checkpoint is {saved_model!r}"
    else:
        remedy = "there is no checkpoint in it"
    return CheckpointNotFoundError(
        "this is a directory, not a checkpoint", file=directory, expected="a prefix", remedy=remedy
    )


def _some(prefixes: list[str]) -> str:
    newest = ", ".join(map(repr, prefixes[: -_MOST_SUGGESTIONS - 1 : -1]))
    return newest + (", ..." if len(prefixes) > _MOST_SUGGESTIONS else "")
