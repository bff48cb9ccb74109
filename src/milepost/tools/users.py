"""Which processes use a checkpoint now: those that save it, and those that have its files open."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from milepost.bundle import index_path, parse_data_path
from milepost.series.leftovers import data_files
from milepost.series.notes import Temporary, temporaries
from milepost.storage.default import DEFAULT_STORAGE

_PROCESSES: Final = "/proc"
"""Where Linux lists the processes. Other systems do not say which files a process has open."""


class FileUser(NamedTuple):
    """A process that has files of a checkpoint open.

    Attributes:
        number: Its number.
        name: The name of its program.
    """

    number: int
    name: str


def is_being_saved(prefix: str) -> bool:
    """Whether a living process saves this checkpoint now. True on file systems without locks if a killed one has left its files."""
    return any(_is_of(each, prefix) and DEFAULT_STORAGE.in_use(each.path) for each in _saves(prefix))


def is_directory_saved_to(prefix: str) -> bool:
    """Whether a living process saves to the directory of a checkpoint now. File systems without locks are as for `is_being_saved`."""
    return any(DEFAULT_STORAGE.in_use(each.path) for each in _saves(prefix))


def readers_of(prefixes: Sequence[str]) -> dict[str, list[FileUser]]:
    """The other processes that have the index or a data file of each checkpoint open, as far as Linux tells this user."""
    owners = {os.path.realpath(path): prefix for prefix in prefixes for path in _files_of(prefix)}
    readers: dict[str, list[FileUser]] = {prefix: [] for prefix in prefixes}
    for number in _numbers():
        if number != os.getpid():
            for prefix in dict.fromkeys(owners[path] for path in _open_in(number) if path in owners):
                readers[prefix].append(FileUser(number, _name_of(number)))
    return readers


def _files_of(prefix: str) -> list[str]:
    data = data_files(DEFAULT_STORAGE, prefix).values()
    return [index_path(prefix), *(path for paths in data for path in paths)]


def _saves(prefix: str) -> Sequence[Temporary]:
    return temporaries(DEFAULT_STORAGE, os.path.dirname(prefix))


def _is_of(temporary: Temporary, prefix: str) -> bool:
    data = parse_data_path(temporary.final)
    return temporary.final in (prefix, index_path(prefix)) or (data is not None and data.prefix == prefix)


def _numbers() -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(_PROCESSES) if name.isdecimal())
    except OSError:  # not Linux
        return []


def _open_in(process: int) -> Iterator[str]:
    """The paths of the files that a process has open; none if it has ended, or belongs to another user."""
    directory = f"{_PROCESSES}/{process}/fd"
    try:
        descriptors = os.listdir(directory)
    except OSError:
        return
    for descriptor in descriptors:
        try:
            yield os.readlink(f"{directory}/{descriptor}")
        except OSError:  # closed meanwhile
            continue


def _name_of(process: int) -> str:
    try:
        with open(f"{_PROCESSES}/{process}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "which has ended"
