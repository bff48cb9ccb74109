"""Reads the files that a program saves with a checkpoint, and adds them to the plan of a save (`milepost.series.files`)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from milepost.engine.arguments import wrong
from milepost.engine.plan import PlannedWrite, SavePlan, Wholes
from milepost.errors import StorageError, UnsupportedError
from milepost.graph.adapter import Array
from milepost.graph.keys import FILES
from milepost.series.files import MOST_BYTES, UINT8, name_that_is_a_directory, problem_of_name
from milepost.storage.paths import check_local, plain_path
from milepost.storage.system_errors import raise_explained
from milepost.tensor import PiecewiseArray

PlanT = TypeVar("PlanT")
Source = bytes | bytearray | memoryview | str | os.PathLike[str]
"""What a program gives for a name: the bytes of the file, or the path of a file or directory."""
_EXPECTED: Final = "bytes, or the path of a file or of a directory"
_NO_NODE: Final = -1
_KINDS: Final = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a directory"),
)


def gathered(files: Any, checkpoints: str = "") -> dict[str, bytes]:
    """Reads the files of an argument ``files``.

    Args:
        files: A mapping of names to bytes or paths; or None. The files in a directory, and in those below it, get names that begin with its name.
        checkpoints: The directory of the checkpoints, which no directory of files may have in it.

    Returns:
        The bytes of each file, by its name in the checkpoint.

    Raises:
        UnsupportedError: An argument is of another type, or names nothing that can be saved. The error names it.
        StorageError: A file cannot be read, or has changed meanwhile.

    Example:
        >>> gathered({"notes.txt": b"first run"})
        {'notes.txt': b'first run'}
    """
    check_files(files)
    sources: dict[str, bytes | str] = {}
    for argument, value in (files or {}).items():
        for name, source in _sources(argument, value, checkpoints):
            if (problem := problem_of_name(name)) is not None:
                raise _refused(
                    argument, f"a file cannot have the name {name!r}: {problem}", "rename it, or leave it out"
                )
            if name in sources:
                raise _refused(argument, f"two files would have the name {name!r}", "give one of them another name")
            sources[name] = source
    if above := name_that_is_a_directory(sources):
        raise _refused(above, f"the file {above!r} would be the directory of other files", "give it another name")
    return _read_all(sources)


def check_files(files: Any) -> None:
    """Checks an argument ``files`` without a look at the files, which may not be there yet.

    Raises:
        UnsupportedError: It is neither None nor a mapping of names to bytes or paths.
    """
    if files is None:
        return
    if not isinstance(files, Mapping) or not all(isinstance(name, str) for name in files):
        raise wrong(
            "files", files, f"a dict from names to {_EXPECTED}", "pass a dict, such as files={'tokenizer': directory}"
        )
    for name, value in files.items():
        if not isinstance(value, (bytes, bytearray, memoryview, str, os.PathLike)):
            raise wrong(f"files[{name!r}]", value, _EXPECTED)
        if (problem := problem_of_name(name)) is not None:
            raise _refused(name, f"a file cannot have the name {name!r}: {problem}", "rename it, or leave it out")


def with_files(
    plan: PlanT, arrays: Sequence[Array | PiecewiseArray], files: Mapping[str, bytes]
) -> tuple[PlanT, Sequence[Array | PiecewiseArray]]:
    """The plan of a save, or of the share of process 0, and its arrays, with files. They go into its last data file.

    Args:
        plan: A `SavePlan`, or a `milepost.saving.distributed_plan.SharePlan`.
        arrays: The array of each of its writes.
        files: The bytes of each file, by name.
    """
    if not files:
        return plan, arrays
    changed: Any = plan
    number_of_files = "shards" if isinstance(plan, SavePlan) else "files"
    count = max(getattr(changed, number_of_files), 1)
    contents = [np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8) for data in files.values()]
    added = [
        PlannedWrite(FILES + name, _NO_NODE, UINT8, array.shape, count - 1)
        for name, array in zip(files, contents, strict=True)
    ]
    writes = _joined(changed.writes, added)
    return replace(changed, writes=writes, **{number_of_files: count}), [*arrays, *contents]


def _joined(writes: Sequence[PlannedWrite], added: Sequence[PlannedWrite]) -> Sequence[PlannedWrite]:
    if not isinstance(writes, Wholes):
        return [*writes, *added]
    keys, nodes, dtypes, shapes, *_ = zip(*added, strict=True)
    return Wholes([*writes.keys, *keys], [*writes.nodes, *nodes], [*writes.dtypes, *dtypes], [*writes.shapes, *shapes])


def _sources(argument: str, value: Any, checkpoints: str) -> Iterator[tuple[str, bytes | str]]:
    """The names of files with their bytes or paths, for one name of the argument."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        yield argument, bytes(value)
        return
    path = plain_path(value)
    check_local(path)
    mode = _mode(argument, path)
    if stat.S_ISREG(mode):
        yield argument, path
        return
    if not stat.S_ISDIR(mode):
        raise _refused(argument, f"{path} is {_kind(mode)}, and no file or directory", f"pass {_EXPECTED}")
    _check_apart(argument, path, checkpoints)
    count = 0
    for name, source in _files_below(argument, path):
        count += 1
        yield f"{argument}/{name}", source
    if not count:
        raise _refused(
            argument,
            f"the directory {path} has no files",
            "write the files before they are saved, or leave this name out",
        )


def _check_apart(argument: str, directory: str, checkpoints: str) -> None:
    """Refuses a directory with the checkpoints in it: each of them would hold the ones before."""
    inside = os.path.join(os.path.realpath(directory), "")
    if (
        checkpoints
        and os.path.isdir(checkpoints)
        and os.path.join(os.path.realpath(checkpoints), "").startswith(inside)
    ):
        raise _refused(
            argument,
            f"the directory {directory} has the checkpoints in it, in {checkpoints}",
            "name the directories and files in it one by one, or save the checkpoints elsewhere",
        )


def _files_below(argument: str, directory: str) -> Iterator[tuple[str, str]]:
    """The files in a directory and in those below it, in order: the name of each from the directory, and its path."""
    inside = os.path.join(os.path.realpath(directory), "")
    waiting = [("", directory)]
    while waiting:
        above, path = waiting.pop()
        try:
            with os.scandir(path) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            raise_explained(error, "list the files to save with the checkpoint", path)
        for entry in entries:
            name = f"{above}{entry.name}"
            if entry.is_symlink():
                _check_link(argument, entry.path, inside)
                yield name, entry.path
            elif entry.is_dir():
                waiting.append((f"{name}/", entry.path))
            else:
                yield name, entry.path


def _check_link(argument: str, path: str, inside: str) -> None:
    """Refuses a symbolic link in a directory, unless it leads to a file of that directory."""
    target = os.path.realpath(path)
    if not target.startswith(inside):
        problem = f"{path} is a symbolic link that leads out of the directory, to {target}"
    elif not os.path.exists(target):
        problem = f"{path} is a symbolic link that leads to nothing"
    elif os.path.isdir(target):
        problem = f"{path} is a symbolic link to a directory"
    else:
        return
    raise _refused(
        argument,
        problem,
        "copy the directory without links, as save_pretrained() of a tokenizer writes it, or name the files one by one",
    )


def _read_all(sources: Mapping[str, bytes | str]) -> dict[str, bytes]:
    sizes = {
        name: len(source) if isinstance(source, bytes) else _size(name, source) for name, source in sources.items()
    }
    _check_total(sizes)
    contents = {name: source if isinstance(source, bytes) else _read(name, source) for name, source in sources.items()}
    _check_total({name: len(data) for name, data in contents.items()})
    return contents


def _check_total(sizes: Mapping[str, int]) -> None:
    total = sum(sizes.values())
    if total > MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise UnsupportedError(
            "the files to save with the checkpoint are too large; nothing was saved",
            key="files",
            expected=f"at most {MOST_BYTES:,} bytes in all",
            found=f"{total:,} bytes, of which {largest!r} has {sizes[largest]:,}",
            remedy="leave out what is large, and save arrays as values of the Checkpoint, such as Checkpoint(table=array)",
        )


def _size(name: str, path: str) -> int:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise_explained(error, "read a file to save with the checkpoint", path)
    _check_regular(name, path, facts.st_mode)
    return facts.st_size


def _read(name: str, path: str) -> bytes:
    """The bytes of a file, of which none was written while they were read."""
    # a FIFO that has taken the place of the file must not stop the program
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(path, "rb", opener=lambda path, _: os.open(path, flags)) as file:
            before = os.fstat(file.fileno())
            _check_regular(name, path, before.st_mode)
            data = file.read(min(before.st_size, MOST_BYTES) + 1)
            after = os.fstat(file.fileno())
    except OSError as error:
        raise_explained(error, "read a file to save with the checkpoint", path)
    stamps = (before.st_size, before.st_mtime_ns), (after.st_size, after.st_mtime_ns)
    if stamps[0] != stamps[1] or len(data) != before.st_size:
        raise StorageError(
            "a file to save with the checkpoint has changed while it was read; nothing was saved",
            key=name,
            file=path,
            expected="a file that nobody writes to during save()",
            remedy="write the file as a whole before save(), or under another name and then rename it",
        )
    return data


def _check_regular(name: str, path: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _refused(name, f"{path} is {_kind(mode)}, and no file", "leave it out")


def _mode(argument: str, path: str) -> int:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        remedy = "pass the path of a file or directory that exists; text that is to be the contents of a file is passed as text.encode()"
        raise _refused(argument, f"there is no file or directory {path}", remedy) from None
    except OSError as error:
        raise_explained(error, "read a file to save with the checkpoint", path)


def _kind(mode: int) -> str:
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "of another kind")


def _refused(argument: str, problem: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(f"{problem}; nothing was saved", key=f"files[{argument!r}]", remedy=remedy)
