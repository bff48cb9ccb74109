"""`CheckpointManager`: numbers checkpoints, records them in the state file, and removes old ones.

After each save, in this order: the new checkpoint is durable; the state file that names it is durable; old checkpoints
are removed, index before data; the state file no longer names them. So after a crash at any point the state file names a
good checkpoint, and what should have been removed is still on the list.

Only the first save of a directory has no state file to fall back to. A crash before there is one would leave a
checkpoint that nothing names, and that the next run would neither restore nor overwrite. So the first save is announced,
by a temporary file ``<directory>/<name>-<number>.milepost-<token>.tmp``, and the next run finishes what it began.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from milepost.bundle import index_path
from milepost.engine.directory import Verification, good_checkpoints, remove_bundle, skipped_message
from milepost.engine.leftovers import Temporary, new_token, sweep_leftovers, temporaries
from milepost.engine.options import CheckpointOptions
from milepost.engine.processes import claim_path
from milepost.engine.state_file import STATE_FILE, CheckpointState, PathLike, get_checkpoint_state, record_state
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    SkippedCheckpointWarning,
    StorageError,
    warn,
)
from milepost.graph.remedies import forgotten_init
from milepost.retention import ManagedCheckpoint, RetentionPolicy, recover
from milepost.storage import LocalStorage, Storage, WritableFile


class NumberedSaves(Protocol):
    """What a manager needs of a `Checkpoint`."""

    @property
    def save_counter(self) -> Any:
        """A variable that counts saves."""
        ...

    def restore(self, save_path: str, options: CheckpointOptions | None = None) -> Any:
        """Restores all or nothing."""
        ...

    def sync(self) -> None:
        """Waits for the save in flight, and raises what it raised."""
        ...

    def _write_numbered(self, path: str, options: CheckpointOptions | None, after: Callable[..., None]) -> str:
        """Saves under ``path``, calls ``after`` with it once it is durable, perhaps later and on another thread."""
        ...


class CheckpointManager:
    """Keeps a series of checkpoints in a directory: numbers them, records them, deletes old ones.

    Arguments, files and rules are those of ``tf.train.CheckpointManager``; each of the two can go on where the other
    stopped. Beyond it, checkpoints that turn out to be damaged or missing are passed over for the newest good one, and
    what crashed saves left in the directory is removed at the start.

    Args:
        checkpoint: The `Checkpoint` to save and restore.
        directory: Where to keep the checkpoints and their state file; it need not exist yet.
        max_to_keep: How many checkpoints to keep, the newest; None keeps all.
        keep_checkpoint_every_n_hours: Of the checkpoints that would be deleted, preserve one for every so many hours.
        checkpoint_name: First part of the files' names.
        step_counter: A variable with the training step; needed for ``checkpoint_interval``.
        checkpoint_interval: Steps; `save` does nothing before so many have passed since the last save.
        init_fn: Called by `restore_or_initialize` if there is no checkpoint.
        last_checkpoint_step: Step of the last save, for ``checkpoint_interval``.
        options: For all saves and restores that are not given others, and where the directory is.
        verify: How a checkpoint of an earlier run is proved good before it is used: ``"checksums"`` reads every byte,
            ``"files"`` its index and the sizes of its files, ``"none"`` only sees whether it exists.

    Raises:
        ValueError: ``max_to_keep`` is not positive, or there is an interval but no counter.
        StateFileError: The directory's state file is not understood.
        StorageError: The directory cannot be read.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
        >>> manager = CheckpointManager(checkpoint, directory, max_to_keep=2)
        >>> manager.restore_or_initialize() is None
        True
        >>> paths = [manager.save() for _ in range(3)]
        >>> manager.checkpoints == paths[1:]
        True
        >>> manager.latest_checkpoint == directory + "/ckpt-3"
        True
    """

    def __init__(
        self,
        checkpoint: NumberedSaves,
        directory: PathLike,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], object] | None = None,
        last_checkpoint_step: int | None = None,
        *,
        options: CheckpointOptions | None = None,
        verify: Verification = "checksums",
    ) -> None:
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("checkpoint_interval counts steps, so step_counter is needed too")
        self._policy = RetentionPolicy(max_to_keep, keep_checkpoint_every_n_hours)
        self._checkpoint = checkpoint
        self._directory = os.fspath(directory)
        self._prefix = os.path.join(self._directory, checkpoint_name)
        self._step_counter = step_counter
        self._checkpoint_interval = checkpoint_interval
        self._last_checkpoint_step = last_checkpoint_step
        self._init_fn = init_fn
        self._options = options
        self._storage: Storage = (options and options.storage) or LocalStorage()
        self._verify = verify
        self._lock = threading.Lock()
        self._managed: tuple[ManagedCheckpoint, ...] = ()
        self._last_preserved = 0.0
        self._series: tuple[str, ...] = ()
        """Every checkpoint that can be restored, as far as is known, newest first."""
        self._latest: str | None = None
        self._must_look = False
        self._recover()
        self._take_up()

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name in ("_checkpoint", "_checkpoint_interval", "_directory", "_managed", "_series"):
                raise forgotten_init(self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def checkpoint(self) -> Any:
        """The `Checkpoint` that is managed."""
        return self._checkpoint

    @property
    def directory(self) -> str:
        """The directory, as it was given."""
        return self._directory

    @property
    def checkpoint_interval(self) -> int | None:
        """Least number of steps between two saves."""
        return self._checkpoint_interval

    @property
    def checkpoints(self) -> list[str]:
        """Paths of the managed checkpoints, oldest first. Those preserved for good are not among them."""
        return [each.path for each in self._managed]

    @property
    def latest_checkpoint(self) -> str | None:
        """Path of the newest good checkpoint, or None.

        Checkpoints of an earlier run are verified when this is first asked for; those that are damaged or missing are
        passed over with a `SkippedCheckpointWarning`.
        """
        series = self._series
        if self._must_look:
            found = next(good_checkpoints(self._storage, series, self._verify), None)
            with self._lock:
                # Meanwhile a save in the background may have ended.
                if self._must_look:
                    self._latest, self._must_look = found, False
        return self._latest

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: CheckpointOptions | None = None
    ) -> str | None:
        """Saves a checkpoint, records it, and deletes those that are no longer to be kept.

        The checkpoint's ``save_counter`` goes up by one in any case.

        Args:
            checkpoint_number: An integer, or a variable that holds one, to number this checkpoint with; by default
                ``save_counter``.
            check_interval: With a ``checkpoint_interval``, whether to do nothing if it has not passed. Nothing is done
                either way if the last save was at this very step.
            options: How to save; by default the manager's options.

        Returns:
            The checkpoint's path, ``<directory>/<checkpoint_name>-<number>``; None if nothing was done. If the save is
            asynchronous, it becomes the latest checkpoint when it is durable; `sync` waits for that.

        Raises:
            CheckpointExistsError: That checkpoint exists, and ``checkpoint`` neither wrote nor restored anything.
            UntrackableError: Something cannot be saved as it is held.
            UnsupportedError: Another process of `torch.distributed` or `jax.distributed` has saved there.
            StorageError: The files could not be written; what was there before still is.
        """
        step = None
        if self._checkpoint_interval is not None:
            step = _integer(self._step_counter)
            if self._is_too_early(step, check_interval):
                return None
        claim_path(self._directory, self._with(options))
        self._checkpoint.sync()
        durable = False
        announcement: WritableFile | None = None

        def publish(path: str, *_: object) -> None:
            nonlocal durable
            durable = True
            self._publish(path)
            self._withdraw(announcement)

        counter = self._checkpoint.save_counter
        counter.assign_add(1)
        try:
            path = f"{self._prefix}-{_integer(counter if checkpoint_number is None else checkpoint_number)}"
            announcement = None if self._series else self._announce(path)
            path = self._checkpoint._write_numbered(path, self._with(options), publish)
        except BaseException:
            if not durable:
                counter.assign_sub(1)
                self._withdraw(announcement)
            raise
        self._last_checkpoint_step = step
        return path

    def restore_or_initialize(self) -> str | None:
        """Restores the newest good checkpoint, or calls ``init_fn`` if there is none.

        A checkpoint that is damaged or missing changes nothing and is passed over for the next older one, with a
        `SkippedCheckpointWarning`.

        Returns:
            The path of the checkpoint that was restored, or None.

        Raises:
            CheckpointNotFoundError: The state file names checkpoints, and all are missing.
            CorruptCheckpointError: The state file names checkpoints, and all are damaged or missing.
            MismatchError: A saved value has another shape or dtype than the live object; nothing was changed.
        """
        self._checkpoint.sync()
        problems: list[MilepostError] = []

        def skip(path: str, problem: MilepostError) -> None:
            problems.append(problem)
            warn(skipped_message(path, problem), SkippedCheckpointWarning)

        for path in good_checkpoints(self._storage, self._series, self._verify, skip):
            try:
                self._checkpoint.restore(path, self._with(None))
            except (CheckpointNotFoundError, CorruptCheckpointError) as error:
                skip(path, error)
                continue
            with self._lock:
                self._latest, self._must_look = path, False
            if self._checkpoint_interval is not None:
                self._last_checkpoint_step = _integer(self._step_counter)
            return path
        if problems:
            raise self._none_is_good(problems)
        if self._init_fn is not None:
            self._init_fn()
        return None

    def sync(self) -> None:
        """Waits for the asynchronous save in flight, and raises what it raised."""
        self._checkpoint.sync()

    def _announce(self, path: str) -> WritableFile:
        self._storage.make_directory(os.path.dirname(path))
        # The save makes this name durable with those of its own temporary files, before its index can be seen.
        return self._storage.create(Temporary(path, new_token()).path)

    def _withdraw(self, announcement: WritableFile | None) -> None:
        if announcement is not None:
            try:
                self._storage.remove(announcement.path)
                announcement.close()
            except StorageError:
                pass  # It will be swept.

    def _finish_first_save(self) -> None:
        if get_checkpoint_state(self._directory, storage=self._storage) is not None:
            return
        for file in temporaries(self._storage, os.path.dirname(self._prefix)):
            announced = file.shards is None and file.final.startswith(self._prefix + "-")
            if announced and not self._storage.in_use(file.path):
                saved = self._modified(file.final)
                if saved is not None:
                    state = CheckpointState(file.final, (file.final,), (saved,), saved - 1.0)
                    record_state(self._directory, state, storage=self._storage)

    def _recover(self) -> None:
        """Brings to an end what crashed saves began."""
        try:
            self._finish_first_save()
            sweep_leftovers(self._storage, self._directory)
        except StorageError as error:
            warn(f"leftovers of crashed saves could not be removed: {error}")

    def _take_up(self) -> None:
        state = get_checkpoint_state(self._directory, storage=self._storage)
        now = time.time()
        if state is None:
            # A checkpoint saved in this very instant must count as newer.
            self._last_preserved = now - 1.0
            return
        timestamps = list(state.all_model_checkpoint_timestamps)
        recorded = []
        for number, path in enumerate(state.all_model_checkpoint_paths):
            timestamp = timestamps[number] if number < len(timestamps) else self._modified(path)
            if timestamp is not None:
                recorded.append(ManagedCheckpoint(self._as_ours(path), timestamp))
        recovered = recover(recorded, state.last_preserved_timestamp, now)
        if recovered.clock_went_back:
            warn(
                f"the clock is {recovered.clock_went_back:.0f} seconds behind the last preserved checkpoint of "
                f"{self._directory}; checkpoints saved since then stay for good"
            )
        self._managed, self._last_preserved = recovered.managed, recovered.last_preserved
        self._series = tuple(dict.fromkeys(map(self._as_ours, state.newest_first())))
        self._must_look = True

    def _modified(self, path: str) -> float | None:
        try:
            return self._storage.modified(index_path(path))
        except CheckpointNotFoundError:
            return None

    def _as_ours(self, path: str) -> str:
        """The path as this manager writes it, if it lies in its directory.

        Were one checkpoint on the list under two names, deleting the old one would delete the new one's files.
        """
        home = os.path.realpath(self._directory)
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        inside = os.path.relpath(place, home)
        return path if inside.startswith(os.pardir + os.sep) else os.path.join(self._directory, inside)

    def _is_too_early(self, step: int, check_interval: bool) -> bool:
        last, interval = self._last_checkpoint_step, self._checkpoint_interval
        if last is None or interval is None:
            return False
        return step == last or (check_interval and step < last + interval)

    def _with(self, options: CheckpointOptions | None) -> CheckpointOptions:
        options = options or self._options or CheckpointOptions()
        return options if options.storage is not None else dataclasses.replace(options, storage=self._storage)

    def _publish(self, path: str) -> None:
        """Records a checkpoint that has become durable, and deletes what is no longer to be kept."""
        with self._lock:
            others = [each for each in self._managed if each.path != path]
            self._managed = (*others, ManagedCheckpoint(path, time.time()))
            self._record(path)
            self._latest, self._must_look = path, False
            self._series = (path, *(each for each in self._series if each != path))
            try:
                self._delete_old(path)
            except StorageError as error:
                warn(f"{path} is saved, but older checkpoints could not be removed: {error}")

    def _delete_old(self, latest: str) -> None:
        decision = self._policy.apply(self._managed, self._last_preserved)
        if len(decision.keep) == len(self._managed):
            return
        self._last_preserved = decision.last_preserved
        self._managed = (*decision.delete, *decision.keep)
        for each in decision.delete:
            remove_bundle(self._storage, each.path)
            self._managed = tuple(other for other in self._managed if other != each)
            self._series = tuple(other for other in self._series if other != each.path)
        self._record(latest)

    def _record(self, latest: str) -> None:
        state = CheckpointState(
            latest,
            tuple(each.path for each in self._managed),
            tuple(each.timestamp for each in self._managed),
            self._last_preserved,
        )
        record_state(self._directory, state, storage=self._storage)

    def _none_is_good(self, problems: list[MilepostError]) -> MilepostError:
        all_missing = all(isinstance(problem, CheckpointNotFoundError) for problem in problems)
        kind = CheckpointNotFoundError if all_missing else CorruptCheckpointError
        return kind(
            "none of the checkpoints that the state file names can be restored",
            file=os.path.join(self._directory, STATE_FILE),
            found="; ".join(f"{problem.problem} ({problem.file})" for problem in problems),
            remedy="put a good checkpoint back, or delete the state file to start anew",
        )


def _integer(value: Any) -> int:
    """The number that a variable, tensor, array or number holds."""
    return int(value.numpy() if hasattr(value, "numpy") else value)
