"""Puts a directory of checkpoints in order: what killed processes have left, and the state file.

The steps, each of which the library takes itself when it saves:

1. A state file that is malformed or missing is made anew: of all numbered checkpoints that are whole.
2. Checkpoints that killed processes had saved but not listed are listed.
3. Removals that killed processes had begun are completed.
4. Leftovers of killed saves are removed. If it is asked for, so is data without an index, whatever has left it.
5. Checkpoints that are damaged or missing are taken off the list. The files of damaged ones stay.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from milepost.bundle import find_prefixes, index_path, parse_data_path
from milepost.bundle.format.names import INDEX_SUFFIX
from milepost.errors import CheckpointNotFoundError, MilepostError, StateFileError, StorageError, UnsupportedError
from milepost.foreign import is_item_of_orbax
from milepost.series.directory import Verification, good_checkpoints
from milepost.series.leftovers import claim_data, data_without_index, sweep_leftovers, sweep_state_files
from milepost.series.notes import temporaries
from milepost.series.removal import finish_removals
from milepost.series.saved_model import is_saved_model
from milepost.series.series import known_checkpoints, list_announced, no_checkpoint_error, split_number
from milepost.series.state_file import STATE_FILE, CheckpointState, read_state_file, record_state
from milepost.storage import Storage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.dry_run import DryRunStorage
from milepost.tools.inventory import size_of


@dataclass(slots=True)
class Repairs:
    """What a repair does, or would do.

    Attributes:
        removed: The paths of the files that are removed.
        state_file: What becomes of the state file, as a sentence; empty if it stays as it is.
        unlisted: The checkpoints that leave the list, with what is wrong with each.
        bad: Other checkpoints that are damaged, with what is wrong with each. They are listed only if no checkpoint is whole.
        latest: The latest checkpoint afterwards.
        data: The prefixes of data without an index that stays, with its bytes.
    """

    removed: list[str] = field(default_factory=list)
    state_file: str = ""
    unlisted: dict[str, MilepostError] = field(default_factory=dict)
    bad: dict[str, MilepostError] = field(default_factory=dict)
    latest: str | None = None
    data: dict[str, int] = field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        """Whether anything changes."""
        return bool(self.removed or self.state_file)


class Repair:
    """The repair of one directory.

    Args:
        directory: The directory.
        verify: How a checkpoint is verified before the state file may name it.
        remove_data: Whether to remove data without an index that no save claims, too.

    Raises:
        CheckpointNotFoundError: There is no such directory.
        UnsupportedError: It is a directory of Orbax.
    """

    def __init__(self, directory: str, verify: Verification, *, remove_data: bool = False) -> None:
        self._directory = directory
        self._remove_data = remove_data
        self._verify: Verification = verify
        self._problems: dict[str, MilepostError | None] = {}
        if not DEFAULT_STORAGE.is_directory(directory):
            raise CheckpointNotFoundError(
                "there is no such directory", file=directory, remedy="pass the directory of the checkpoints"
            )
        if is_item_of_orbax(DEFAULT_STORAGE, directory):
            raise UnsupportedError(
                "this is a directory of Orbax, of which milepost repairs nothing",
                file=directory,
                remedy="pass a directory of checkpoints of milepost or TensorFlow",
            )

    def planned(self) -> Repairs:
        """What `carry_out` would do. No file changes."""
        storage = DryRunStorage()
        before = self._state_text(DEFAULT_STORAGE)
        repairs = self._run(storage)
        after = self._state_text(storage)
        if before == after:
            repairs.state_file = ""
        elif not repairs.state_file:
            repairs.state_file = (
                "removed, since it names no checkpoint that is there" if after is None else "written anew"
            )
        state_path = os.path.join(self._directory, STATE_FILE)
        repairs.removed = sorted(storage.removed - {state_path})
        repairs.data = {prefix: size_of(prefix) for prefix in data_without_index(storage, self._directory)}
        return repairs

    def carry_out(self) -> None:
        """Repairs the directory.

        Raises:
            StorageError: A file cannot be written or removed.
        """
        self._run(DEFAULT_STORAGE)

    def _run(self, storage: Storage) -> Repairs:
        repairs, directory = Repairs(), self._directory
        try:
            is_missing = known_checkpoints(storage, directory) is None
        except StateFileError as error:
            repairs.state_file = f"made anew, since it was malformed: {error.problem}"
            self._make(storage, error)
        else:
            if is_missing and not is_saved_model(storage, directory) and self._numbered(storage):
                repairs.state_file = "made, since there was none"
                self._make(storage, no_checkpoint_error(storage, directory))
        list_announced(storage, directory)
        finish_removals(storage, directory)
        if self._remove_data:
            for prefix in data_without_index(storage, directory):
                claim_data(storage, prefix)
        sweep_leftovers(storage, directory)
        sweep_state_files(storage, self._state_path)
        self._unlist(storage, repairs)
        for prefix in find_prefixes(storage, directory):
            if prefix not in repairs.unlisted and (problem := self._problem(prefix)) is not None:
                repairs.bad[prefix] = problem
        return repairs

    @property
    def _state_path(self) -> str:
        return os.path.join(self._directory, STATE_FILE)

    def _state_text(self, storage: Storage) -> bytes | None:
        try:
            return read_state_file(storage, self._directory)
        except StateFileError:
            return b""

    def _numbered(self, storage: Storage) -> list[str]:
        """The checkpoints that a state file could name, oldest first."""
        splits = {
            prefix: split for prefix in find_prefixes(storage, self._directory) if (split := split_number(prefix))
        }
        if len({stem for stem, _ in splits.values()}) <= 1:
            return list(splits)  # in the order of their numbers, which copies keep
        return sorted(splits, key=lambda prefix: (storage.modified(index_path(prefix)), splits[prefix]))

    def _make(self, storage: Storage, otherwise: MilepostError) -> None:
        """Writes a state file that names all whole numbered checkpoints."""
        whole = [prefix for prefix in self._numbered(storage) if self._problem(prefix) is None]
        if not whole:
            raise otherwise
        self._write(storage, CheckpointState(whole[-1], whole, [storage.modified(index_path(each)) for each in whole]))

    def _write(self, storage: Storage, state: CheckpointState) -> None:
        record_state(self._directory, state, storage=storage)

    def _unlist(self, storage: Storage, repairs: Repairs) -> None:
        """Takes checkpoints that are not whole off the list."""
        state = known_checkpoints(storage, self._directory)
        if state is None:
            return
        problems = {prefix: self._problem(prefix) for prefix in state.newest_first()}
        repairs.unlisted = {prefix: problem for prefix, problem in problems.items() if problem is not None}
        repairs.latest = state.model_checkpoint_path
        if not repairs.unlisted:
            return
        whole = [prefix for prefix in problems if problems[prefix] is None]
        if not whole:
            numbered = [prefix for prefix in self._numbered(storage) if self._problem(prefix) is None]
            if not numbered:
                # a state file that names nothing good is an error of the next restore, which must not start anew in silence
                repairs.bad, repairs.unlisted = repairs.unlisted, {}
                return
            self._make(storage, no_checkpoint_error(storage, self._directory))
            repairs.latest = numbered[-1]
            return
        paths, times = state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
        left = [position for position, path in enumerate(paths) if path not in repairs.unlisted]
        repairs.latest = whole[0]
        changed = dataclasses.replace(
            state,
            model_checkpoint_path=whole[0],
            all_model_checkpoint_paths=[paths[position] for position in left],
            all_model_checkpoint_timestamps=[times[position] for position in left] if len(times) == len(paths) else [],
        )
        self._write(storage, changed)

    def _problem(self, prefix: str) -> MilepostError | None:
        """What is wrong with a checkpoint. It is found out once, since this may read all its data."""
        if prefix not in self._problems:
            skipped: dict[str, MilepostError] = {}
            skip: Callable[[str, MilepostError], None] = skipped.__setitem__
            list(good_checkpoints(DEFAULT_STORAGE, [prefix], self._verify, skip))
            self._problems[prefix] = skipped.get(prefix)
        return self._problems[prefix]


def repairable_below(directory: str, *, levels: int | None = None) -> list[str]:
    """The directories below one that hold checkpoints of milepost or TensorFlow, or what is left of them. Links are not followed.

    Args:
        directory: The directory.
        levels: How many levels to look at; None for all.
    """
    inside = [os.path.join(directory, name) for name in _readable_names(directory)]
    below = [path for path in inside if os.path.isdir(path) and not os.path.islink(path)] if levels != 0 else []
    further = None if levels is None else levels - 1
    repairable = []
    for path in below:
        repairable += [path] if _is_repairable(path) else []
        repairable += repairable_below(path, levels=further)
    return repairable


def _readable_names(directory: str) -> list[str]:
    try:
        return DEFAULT_STORAGE.list(directory)
    except StorageError:  # this user may not read it
        return []


def _is_repairable(directory: str) -> bool:
    if is_item_of_orbax(DEFAULT_STORAGE, directory) or is_saved_model(DEFAULT_STORAGE, os.path.dirname(directory)):
        return False
    names = _readable_names(directory)
    endings = (INDEX_SUFFIX, ".tmp")
    if not any(name == STATE_FILE or name.endswith(endings) or parse_data_path(name) for name in names):
        return False
    return bool(
        STATE_FILE in names
        or find_prefixes(DEFAULT_STORAGE, directory)
        or temporaries(DEFAULT_STORAGE, directory)
        or temporaries(DEFAULT_STORAGE, directory, of_removals=True)
        or data_without_index(DEFAULT_STORAGE, directory)
    )
