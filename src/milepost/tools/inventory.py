"""Which checkpoints a directory holds, and what is known of each without reading its data."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from milepost.bundle import find_prefixes, index_path, parse_data_path
from milepost.bundle.format.names import INDEX_SUFFIX, v1_shards
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    StateFileError,
    StorageError,
    UnsupportedError,
)
from milepost.foreign import files_of_model, is_index, is_one_of_directories, is_part_of_model, needs_orbax
from milepost.foreign.jax.orbax_layout import UNFINISHED
from milepost.foreign.zip_directory import Archive
from milepost.restoring.load import open_any
from milepost.series.files import file_sizes
from milepost.series.leftovers import data_without_index
from milepost.series.metadata import read_metadata
from milepost.series.notes import temporaries
from milepost.series.pins import pinned_in
from milepost.series.saved_model import checkpoint_of, is_saved_model, prefix_of_variables
from milepost.series.series import known_checkpoints, no_checkpoint_error, place_of, split_number
from milepost.series.state_file import STATE_FILE
from milepost.storage import Storage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.storage.paths import is_url
from milepost.tools.terminal import shown

State = Literal["complete", "damaged", "missing", "deleted", "no index", "not read", "not checked"]
"""What is known without reading values. A checkpoint is complete if its index is undamaged, and each data file is there and as long as the index
says; a file of another library, if its header or directory says where its values are, and the file is as long as that. It is deleted if a program
has deleted it since it was listed, is deleting it, or was killed while it did. Data without an index, which no state file lists, is no checkpoint."""
_WEIGHTS: Final = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".msgpack", ".keras", ".h5", ".hdf5", ".npz")
"""The endings of files of other libraries that are listed."""
_PICKLED: Final = (".pkl", ".pickle")
"""The endings of files that are listed if they are archives, as `torch.save` writes them. Other programs write much else under such names."""
_GRAPH: Final = ".meta"
"""The ending of the file of a graph beside a checkpoint of TensorFlow 1."""
_MOST_LISTED: Final = 3
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_SHARD: Final = re.compile(r"(.*)-0{5,}-of-\d{5,}", re.DOTALL)
"""The first file of a checkpoint from before TensorFlow 0.12 in several files."""
_PATTERN: Final = re.compile(r"(.*)-\?{5}-of-\d{5,}", re.DOTALL)
"""How TensorFlow 1 names a checkpoint in several files."""


@dataclass(slots=True)
class FoundCheckpoint:
    """Where a checkpoint is.

    Attributes:
        path: The prefix, file or directory.
        step: Its number, or None.
        is_latest: Whether the state file names it as the latest.
        is_pinned: Whether it is pinned.
        is_listed: Whether the state file lists it.
        is_left_out: Whether it is a checkpoint of a directory whose state file does not list it.
        is_data: Whether there is only data of it, which no state file lists.
        saved: When it was saved, as the state file says; otherwise None.
    """

    path: str
    step: int | None = None
    is_latest: bool = False
    is_pinned: bool = False
    is_listed: bool = False
    is_left_out: bool = False
    is_data: bool = False
    saved: float | None = None


@dataclass(slots=True)
class CheckpointFacts:
    """What is known of a checkpoint.

    Attributes:
        state: Whether it is complete.
        size: The bytes of all its files.
        modified: When its files changed last, in seconds since the epoch; None if that is not known.
        tensors: How many tensors it has, or None. Files do not count.
        files: The sizes of the files that were saved with it, by name.
        metrics: The metrics that were saved with it.
        nonfinite: The names of the first values with NaN or infinity, if a manager has marked it as not finite.
        problem: What is wrong with it.
    """

    state: State
    size: int = 0
    modified: float | None = None
    tensors: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    nonfinite: tuple[str, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    problem: MilepostError | None = None


@dataclass(slots=True)
class Inventory:
    """The checkpoints of a directory.

    Attributes:
        places: Where they are, in the order of their series and numbers.
        problems: What is wrong with state files.
        not_searched: Directories further down, which were not looked into, and those that cannot be read.
    """

    places: list[FoundCheckpoint]
    problems: list[StateFileError] = field(default_factory=list)
    not_searched: list[str] = field(default_factory=list)

    def newest_first(self) -> list[FoundCheckpoint]:
        """The latest checkpoint, and then all others from the last to the first."""
        return [
            *(each for each in self.places if each.is_latest),
            *(each for each in reversed(self.places) if not each.is_latest),
        ]


def inventory_of(
    path: str, storage: Storage = DEFAULT_STORAGE, *, levels: int | None = 0, with_data: bool = False
) -> Inventory:
    """The checkpoints at a path: all of a directory of checkpoints, listed or not; or the one that it means.

    Args:
        path: A directory, or what names one checkpoint.
        storage: Where it is.
        levels: Into how many levels of directories below it to look, too; None for all.
        with_data: Whether to list data without an index, too, as long as no program saves it.

    Raises:
        CheckpointNotFoundError: There is none.
        StateFileError: There is none but a state file, which is malformed.
        StorageError: The directory cannot be read.
    """
    if _means_one(storage, path):
        return Inventory([_alone(storage, path)])
    inventory = _inside(storage, path, levels, set(), with_data=with_data)
    if not inventory.places:
        error = inventory.problems[0] if inventory.problems else no_checkpoint_error(storage, path)
        if levels and inventory.not_searched and not inventory.problems:
            error.remedy = (
                f"name one of the directories in it, which were not looked into: {_listed(inventory.not_searched)}"
            )
        raise error
    inventory.places.sort(key=lambda checkpoint: _order(checkpoint.path))
    return inventory


def _inside(
    storage: Storage, directory: str, levels: int | None, seen: set[tuple[int, str]], *, with_data: bool
) -> Inventory:
    """The checkpoints in a directory, in no order, which may be none. Other arguments and errors are those of `inventory_of`.

    Args:
        seen: The directories that have been looked into, to which this one is added.
    """
    seen.add(place_of(storage, directory))
    problems = []
    try:
        state = known_checkpoints(storage, directory)
    except StateFileError as error:
        state = None
        problems.append(error)
    pinned = pinned_in(storage, directory)
    listed: dict[str, float | None] = {}
    if state is not None:
        times = state.all_model_checkpoint_timestamps
        timed = len(times) == len(state.all_model_checkpoint_paths)
        listed = dict.fromkeys(reversed(state.newest_first()))
        listed |= zip(state.all_model_checkpoint_paths, times if timed else [None] * len(listed), strict=False)
    # TensorFlow 1 lists a checkpoint of several files by a pattern
    known = {match[1] for each in listed if (match := _PATTERN.fullmatch(each))}
    others, directories = _others(storage, directory)
    prefixes = find_prefixes(storage, directory)
    left_out = set(prefixes).difference(listed) if state is not None else ()
    paths = dict.fromkeys([*prefixes, *(each for each in others if each not in known), *listed])
    latest = None if state is None else state.model_checkpoint_path
    checkpoints = {
        path: FoundCheckpoint(
            path,
            _number(path),
            path == latest,
            path in pinned,
            path in listed,
            path in left_out,
            saved=listed.get(path),
        )
        for path in paths
    }
    if with_data:
        checkpoints |= {
            path: FoundCheckpoint(path, _number(path), is_data=True)
            for path in data_without_index(storage, directory)
            if path not in paths
        }
    if levels == 0:
        return Inventory([*checkpoints.values()], problems, directories)
    not_searched = []
    for subdirectory in directories:
        try:
            if place_of(storage, subdirectory) in seen:
                continue  # a link
            further = None if levels is None else levels - 1
            inside = _inside(storage, subdirectory, further, seen, with_data=with_data)
        except StorageError:  # this user may not read it
            not_searched.append(subdirectory)
            continue
        model = files_of_model(storage, subdirectory) if subdirectory in paths else []
        for checkpoint in inside.places:
            if checkpoint.path not in model:
                checkpoints.setdefault(checkpoint.path, checkpoint)
        problems += inside.problems
        not_searched += inside.not_searched
    return Inventory([*checkpoints.values()], problems, not_searched)


def of_other_libraries(directory: str, storage: Storage = DEFAULT_STORAGE) -> list[str]:
    """The files and directories of other libraries that a listing of a directory has."""
    paths, _ = _others(storage, directory)
    return [path for path in paths if not storage.is_file(index_path(path))]


def not_searched_note(inventory: Inventory) -> str:
    """A line about the directories that were not looked into; empty if there are none."""
    count = len(inventory.not_searched)
    if not count:
        return ""
    what = "1 directory further down," if count == 1 else f"{count:,} directories further down, such as"
    return f"not looked into: {what} {_listed(inventory.not_searched)}"


def _listed(directories: Sequence[str]) -> str:
    """A few directories, hidden ones last."""
    first = sorted(directories, key=lambda each: (f"{os.sep}." in each.removeprefix(os.curdir + os.sep), each))
    return ", ".join(map(shown, map(os.path.normpath, first[:_MOST_LISTED])))


def facts_of(checkpoint: FoundCheckpoint, storage: Storage = DEFAULT_STORAGE) -> CheckpointFacts:
    """What can be known of a checkpoint without reading its data: its index, and the sizes of its files."""
    path = checkpoint.path
    if checkpoint.is_data:
        return _facts_of_data(path, storage)
    state: State
    problem: MilepostError
    try:
        if needs_orbax(storage, path):
            return CheckpointFacts("not checked", *_stat(storage, _files_of(storage, path)))
        with open_any(storage, path) as reader:
            reader.check_files()
            if not reader.origin.is_checkpoint:
                return CheckpointFacts("complete", *_stat(storage, _files_of(storage, path)), len(reader.keys()))
            size_and_time = _stat(storage, [index_path(reader.prefix), *reader.shard_paths])
            saved_with = read_metadata(reader)
            files = file_sizes(reader)
            count, metrics = len(reader.keys()) - len(files), saved_with.metrics or {}
            return CheckpointFacts("complete", *size_and_time, count, metrics, saved_with.nonfinite, files)
    except (CheckpointNotFoundError, CorruptCheckpointError) as error:
        state, problem = "damaged", error
    except (UnsupportedError, StorageError) as error:
        state, problem = "not read", error
    size, modified = _stat(storage, _files_of(storage, path))
    if state == "damaged" and (deletion := deletion_of(path, storage)) is not None:
        return CheckpointFacts("deleted", size, modified, problem=deletion)
    is_missing = isinstance(problem, CheckpointNotFoundError) and not size
    return CheckpointFacts("missing" if is_missing else state, size, modified, problem=problem)


def _facts_of_data(path: str, storage: Storage) -> CheckpointFacts:
    """What can be known of data without an index."""
    size, modified = _stat(storage, _files_of(storage, path))
    if _is_deletion_begun(path, storage):
        return CheckpointFacts("deleted", size, modified, problem=deletion_of(path, storage))
    directory = os.path.dirname(path) or os.curdir
    problem = CheckpointNotFoundError(
        "there is data without an index: a deletion or a copy was cut short, or a copy is not finished",
        file=path,
        remedy=f"'milepost repair {shlex.quote(directory)} --remove-data' removes such data, and 'milepost rm' that of one prefix",
    )
    return CheckpointFacts("no index", size, modified, problem=problem)


def size_of(path: str, storage: Storage = DEFAULT_STORAGE) -> int:
    """The bytes of all files of a checkpoint, damaged or not."""
    return _stat(storage, _files_of(storage, path))[0]


def deletion_of(path: str, storage: Storage = DEFAULT_STORAGE) -> CheckpointNotFoundError | None:
    """The problem of a checkpoint that was listed, and whose index is not there because a program deletes or has deleted it. Otherwise None."""
    if storage.is_file(index_path(path)):
        return None
    try:
        is_begun = _is_deletion_begun(path, storage)
        state = known_checkpoints(storage, os.path.dirname(path))
    except MilepostError:
        return None
    if not is_begun and (state is None or path in state.newest_first()):
        return None
    return CheckpointNotFoundError(
        "a program was killed while it deleted this checkpoint, or deletes it now"
        if is_begun
        else "a program has just deleted this checkpoint",
        file=path,
        remedy="the next manager of the directory completes the deletion; so does 'milepost repair'"
        if is_begun
        else None,
    )


def _is_deletion_begun(path: str, storage: Storage) -> bool:
    """Whether a note says that a program removes a checkpoint, or was killed while it did."""
    directory, name = os.path.split(path)
    notes = temporaries(storage, directory or os.curdir, of_removals=True)
    return any(os.path.basename(note.final) == name for note in notes)


def age_of(place: FoundCheckpoint, facts: CheckpointFacts) -> float | None:
    """How many seconds ago a checkpoint was saved, or None if that is not known."""
    saved = facts.modified if place.saved is None else place.saved
    return None if saved is None else max(0.0, time.time() - saved)


def _means_one(storage: Storage, path: str) -> bool:
    if not storage.is_directory(path) or storage.is_file(index_path(path)):
        return True
    is_exported = is_saved_model(storage, path) and not storage.is_file(os.path.join(path, STATE_FILE))
    return is_exported or is_one_of_directories(storage, path)


def _alone(storage: Storage, path: str) -> FoundCheckpoint:
    """The one checkpoint that a path means. What its directory says of it is known, too."""
    prefix = checkpoint_of(storage, path)
    if prefix == path and path.endswith(".index") and storage.is_file(path):
        prefix = path.removesuffix(".index")
    directory = os.path.dirname(prefix)
    if storage.is_file(index_path(prefix)):
        try:
            state = known_checkpoints(storage, directory)
        except MilepostError:
            state = None
        latest = None if state is None else state.model_checkpoint_path
        is_listed = state is not None and prefix in state.newest_first()
        return FoundCheckpoint(
            prefix,
            _number(prefix),
            prefix == latest,
            prefix in pinned_in(storage, directory),
            is_listed,
            state is not None and not is_listed,
        )
    is_part = parse_data_path(prefix) is not None or prefix.endswith(_GRAPH)
    if is_part or not (os.path.isfile(prefix) or os.path.isdir(prefix) or v1_shards(storage, prefix)):
        open_any(storage, prefix).close()  # raises an error that says what there is
    return FoundCheckpoint(prefix)


def _others(storage: Storage, directory: str) -> tuple[list[str], list[str]]:
    """What a directory holds beside bundles with an index.

    Returns:
        Files and directories of other libraries, and SavedModels; and all other directories. The directory of a model is among both if there is
        more in it, as trainers save the optimizer beside the model.
    """
    names = dict.fromkeys(sorted(storage.list(directory)))
    paths: list[str] = []
    directories: list[str] = []
    if is_saved_model(storage, directory) and storage.is_file(index_path(variables := prefix_of_variables(directory))):
        paths.append(variables)
    indexes = [name for name in names if is_index(name)]
    for name in names:
        path = os.path.join(directory, name)
        if storage.is_directory(path):
            is_one, is_more = _is_one_directory(storage, path)
            paths += [path] if is_one else []
            directories += [path] if is_more else []
        elif not storage.is_file(path):
            continue  # a pipe or a device
        elif name.endswith(_WEIGHTS) or (name.endswith(_PICKLED) and _is_archive(storage, path)):
            if not is_part_of_model(name, indexes):
                paths.append(path)
        else:
            if is_index(name) or (name + _GRAPH in names and name + INDEX_SUFFIX not in names):
                paths.append(path)
            split = None if parse_data_path(name) else _SHARD.fullmatch(name)
            if split and v1_shards(storage, os.path.join(directory, split[1])):
                paths.append(os.path.join(directory, split[1]))
    return paths, directories


def _is_archive(storage: Storage, path: str) -> bool:
    """Whether a file begins like a zip archive with records."""
    try:
        file = storage.open(path)
    except MilepostError:
        return False
    try:
        return Archive(file).looks_like_one
    finally:
        file.close()


def _is_one_directory(storage: Storage, path: str) -> tuple[bool, bool]:
    """Whether a directory in another one is listed as one checkpoint, and whether there may be others in it."""
    try:
        if _means_one(storage, path):
            return True, False
        model = files_of_model(storage, path)
        names = storage.list(path) if model else []
    except StorageError:  # this user may not read it
        return False, True
    inside = [os.path.join(path, name) for name in names]
    is_more = any(
        entry not in model and (entry.endswith((*_WEIGHTS, *_PICKLED, INDEX_SUFFIX)) or storage.is_directory(entry))
        for entry in inside
    )
    return bool(model), is_more or not model


def _files_of(storage: Storage, path: str) -> list[str]:
    """All files of a checkpoint that may be damaged, and directories that are one."""
    try:
        path = checkpoint_of(storage, path)
    except MilepostError:
        return [path]  # a SavedModel without variables
    if storage.is_directory(path) and not storage.is_file(index_path(path)):
        return files_of_model(storage, path) or [path]
    directory, name = os.path.split(path)
    parsed = [(each, parse_data_path(each)) for each in storage.list(directory)]
    data = [os.path.join(directory, each) for each, of in parsed if of is not None and of.prefix == name]
    return [index_path(path), *data, *_of_v1(storage, path), *(files_of_model(storage, path) or [path])]


def _of_v1(storage: Storage, path: str) -> tuple[str, ...]:
    return () if storage.is_file(index_path(path)) else v1_shards(storage, path)


def _stat(storage: Storage, paths: Iterable[str]) -> tuple[int, float | None]:
    """The bytes of files, and when the last of them changed. Files that are not there count as empty."""
    total, last = 0, None
    for path in paths:
        if is_url(path):
            with contextlib.suppress(MilepostError):
                with contextlib.closing(storage.open(path)) as opened:
                    total += opened.size
                modified = storage.modified(path)
                last = modified if last is None else max(last, modified)
            continue
        inside = [path]
        if os.path.isdir(path):
            inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
        for file in inside:
            try:
                status = os.stat(file)
            except (OSError, ValueError):
                continue
            total += status.st_size
            last = status.st_mtime if last is None else max(last, status.st_mtime)
    return total, last


def _number(path: str) -> int | None:
    pattern = _PATTERN.fullmatch(path)
    split = _split(pattern[1] if pattern else path)
    return None if split is None else split[1]


def _order(path: str) -> tuple[str, int]:
    return _split(path) or (path, -1)


def _split(path: str) -> tuple[str, int] | None:
    """Stem and number of a checkpoint of a series. Steps of Orbax, and versions of a SavedModel, have a number as their name. The name of
    a step that Orbax has not finished goes on after it."""
    directory, name = os.path.split(path)
    name, unfinished, _ = name.partition(UNFINISHED)
    if unfinished:
        path = os.path.join(directory, name)
    return (os.path.join(directory, ""), int(name)) if _DIGITS.fullmatch(name) else split_number(path)
