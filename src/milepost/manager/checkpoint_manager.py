"""`CheckpointManager`: numbers checkpoints, records them in the state file, and removes old ones.

After each save, in this order: the new checkpoint is durable; the state file that names it is durable; old checkpoints
are removed, index before data; the state file no longer names them. So after a crash at any point the state file names a
good checkpoint, and what should have been removed is still on the list. A checkpoint that was saved when the process was
killed, and that the state file does not name yet, was announced (`milepost.engine.announcement`): the next manager lists it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from milepost.checkpoint import Checkpoint
from milepost.checkpoint.tracing import as_written, refuse_if_traced
from milepost.engine.directory import Verification, newest_good, skipped_message
from milepost.engine.leftovers import sweep_leftovers
from milepost.engine.options import CheckpointOptions, resolved
from milepost.engine.processes import claim_path
from milepost.engine.removal import is_left, remove_bundles
from milepost.engine.run_save import ListedSave
from milepost.engine.saved_model import is_saved_model
from milepost.engine.series import list_announced, numbered
from milepost.engine.state_file import STATE_FILE, CheckpointState, PathLike
from milepost.engine.status import LoadStatus
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    SkippedCheckpointWarning,
    StorageError,
    UnsupportedError,
    UntrackableError,
    warn,
)
from milepost.forks import ForkableLock
from milepost.graph.description import counted, of_file, shortened
from milepost.graph.remedies import forgotten_init
from milepost.manager.listing import Listing
from milepost.manager.whole_numbers import whole_number
from milepost.retention import RetentionPolicy
from milepost.storage import LOCAL_STORAGE, Storage, anchored
from milepost.storage.paths import check_local, plain_path

if TYPE_CHECKING:
    from typing_extensions import (
        TypeVar,
    )  # type checkers know it; a `CheckpointManager` without brackets is of any Checkpoint

    CheckpointT = TypeVar("CheckpointT", bound=Checkpoint, default=Checkpoint, covariant=True)
else:
    from typing import TypeVar

    CheckpointT = TypeVar("CheckpointT")


class CheckpointManager(Generic[CheckpointT]):
    """Keeps a series of checkpoints in a directory: numbers them, records them, deletes old ones.

    Arguments, files and rules are those of ``tf.train.CheckpointManager``; each of the two can go on where the other
    stopped. Beyond it, checkpoints that turn out to be damaged or missing are passed over for the newest good one, what
    crashed saves left in the directory is removed at the start, and what a killed process had saved is listed then.

    The manager restores, keeps and removes the checkpoints ``<directory>/<checkpoint_name>-<number>`` that are on the list
    of the directory, and no others; several managers with different names may share a directory. A listed checkpoint that
    lies elsewhere, or that has another name, is restored only if there is none of its own, and is never removed.

    A run that has restored nothing from a directory does not add to a series of checkpoints that it finds there: its first
    save raises `CheckpointExistsError`.

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
        UntrackableError: ``checkpoint`` is no `Checkpoint`.
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
        checkpoint: CheckpointT,
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
        if not isinstance(checkpoint, Checkpoint):
            raise UntrackableError(
                "a manager manages a milepost.Checkpoint",
                expected="a milepost.Checkpoint",
                found=f"a {type(checkpoint).__module__}.{type(checkpoint).__qualname__}",
                remedy="pass milepost.Checkpoint(name=object, ...) of the objects to be saved",
            )
        self._policy = RetentionPolicy(max_to_keep, keep_checkpoint_every_n_hours)
        self._checkpoint = checkpoint
        self._directory = plain_path(directory)
        check_local(plain_path(checkpoint_name))
        self._prefix = os.path.join(self._directory, checkpoint_name)
        self._step_counter = step_counter
        self._checkpoint_interval = checkpoint_interval
        self._last_checkpoint_step = last_checkpoint_step
        self._init_fn = init_fn
        self._options = options
        # The series stays in one place, even if the current directory changes.
        self._storage: Storage = anchored(resolved(options).storage or LOCAL_STORAGE, self._directory)
        self._verify = verify
        self._lock = ForkableLock()
        self._listing = Listing(self._storage, self._directory, self._prefix)
        self._status: LoadStatus | None = None
        self._latest: str | None = None
        self._must_look = True
        self._recover()
        self._listing.load()
        self._warn_of_unlisted()

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("__") and "_checkpoint" not in self.__dict__:
                raise forgotten_init(self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        listing: Listing | None = self.__dict__.get("_listing")
        policy: RetentionPolicy | None = self.__dict__.get("_policy")
        if listing is None or policy is None:
            return of_file(self, self.__dict__.get("_directory"))
        managed = listing.managed
        facts = [counted(len(managed), "checkpoint")]
        if managed:
            facts.append(f"the last {shortened(os.path.basename(managed[-1].path))}")
        facts.append("keeps all" if policy.max_to_keep is None else f"keeps {policy.max_to_keep}")
        return of_file(self, self._directory, *facts)

    @property
    def checkpoint(self) -> CheckpointT:
        """The `Checkpoint` that is managed, of the class that was given."""
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
        return [each.path for each in self._listing.managed]

    @property
    def status(self) -> LoadStatus | None:
        """What the restore of `restore_or_initialize` returned, with its report and assertions; None if it restored nothing."""
        return self._status

    @property
    def latest_checkpoint(self) -> str | None:
        """Path of the newest good checkpoint, or None.

        Checkpoints of an earlier run are verified when this is first asked for; those that are damaged or missing are
        passed over with a `SkippedCheckpointWarning`.
        """
        if self._must_look:
            found = newest_good(self._storage, self._listing.refresh, self._verify)
            with self._lock:
                # Meanwhile a save in the background may have ended.
                if self._must_look:
                    self._latest, self._must_look = found, False
        return self._latest

    @as_written
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
            CheckpointExistsError: There are checkpoints of this name, and ``checkpoint`` has restored none of this directory.
            UntrackableError: Something cannot be saved as it is held.
            UnsupportedError: Another process of `torch.distributed` or `jax.distributed` has saved there.
            StorageError: The files could not be written; what was there before still is.
            AfterCommitError: The checkpoint is saved and can be restored; what failed comes after that.
        """
        refuse_if_traced("a save")
        if self._checkpoint_interval is not None and self._is_too_early(
            whole_number(self._step_counter), check_interval
        ):
            return None
        with self._checkpoint._exclusive():
            return self._save(checkpoint_number, check_interval, options)

    def _save(self, checkpoint_number: Any, check_interval: bool, options: CheckpointOptions | None) -> str | None:
        step = None
        if self._checkpoint_interval is not None:
            step = whole_number(self._step_counter)
            if self._is_too_early(step, check_interval):
                return None  # Another thread has just saved.
        counter = self._checkpoint.save_counter
        counter.assign_add(1)
        save: ListedSave | None = None
        try:
            number = whole_number(counter if checkpoint_number is None else checkpoint_number)
            if number < 0:
                raise UnsupportedError(
                    "a checkpoint has no negative number",
                    expected="0 or more",
                    found=number,
                    remedy="pass a step that counts from 0, or no checkpoint_number, to number by save_counter",
                )
            path = f"{self._prefix}-{number}"
            save = ListedSave(path, self._with(options), lambda _, path, durable: self._publish(path, durable))
            claim_path(save.directory, save.options)
            self._checkpoint._write_numbered(save)
        except BaseException:
            if save is not None and save.is_committed:
                self._last_checkpoint_step = step
            else:
                counter.assign_sub(1)
            raise
        self._last_checkpoint_step = step
        return path

    @as_written
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
        problems: dict[str, MilepostError] = {}
        refused: set[str] = set()
        while True:
            path = newest_good(
                self._storage, lambda: _without(refused, self._listing.refresh()), self._verify, problems.__setitem__
            )
            if path is None:
                break
            try:
                self._status = self._checkpoint.restore(path, self._with(None))
            except (CheckpointNotFoundError, CorruptCheckpointError) as error:
                problems[path] = error
                refused.add(path)
                continue
            break
        state = self._listing.refresh() if problems else None
        listed = [] if state is None else state.newest_first()
        for each, problem in problems.items():
            # Another process may have removed it after it was found good.
            is_pruned = each in refused and each not in listed and isinstance(problem, CheckpointNotFoundError)
            if path is None or not is_pruned:
                warn(skipped_message(each, problem), SkippedCheckpointWarning)
        if path is not None:
            with self._lock:
                self._latest, self._must_look = path, False
            if self._checkpoint_interval is not None:
                self._last_checkpoint_step = whole_number(self._step_counter)
            return path
        if problems:
            raise self._none_is_good(list(problems.values()))
        if self._init_fn is not None:
            self._init_fn()
        return None

    def adopt_checkpoints(self) -> list[str]:
        """Lists checkpoints of this series that are in the directory and on no list, for example because they were copied.

        From then on they are restored, kept and removed like those that were listed before. When each was saved is taken
        from its index file; the one with the highest number becomes the latest if none was listed before.

        Returns:
            Their paths, in the order of their numbers.

        Raises:
            StateFileError: The state file is not understood.
            StorageError: The directory cannot be read, or the state file cannot be written.

        Example:
            >>> import milepost, os, tempfile
            >>> directory = tempfile.mkdtemp()
            >>> path = milepost.Checkpoint(step=milepost.Variable(3)).write(directory + "/ckpt-7")
            >>> manager = CheckpointManager(milepost.Checkpoint(step=milepost.Variable(0)), directory, max_to_keep=5)
            >>> manager.adopt_checkpoints() == [path]
            True
            >>> manager.restore_or_initialize() == path
            True
        """
        with self._lock:
            found = self._listing.adopt()
            self._must_look |= bool(found)
        return found

    def sync(self) -> None:
        """Waits for the asynchronous save in flight, and raises what it raised."""
        self._checkpoint.sync()

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "a manager of a directory can be neither copied nor pickled: two would delete each other's checkpoints",
            file=self._directory,
            remedy="pass the directory, and make a CheckpointManager where it is needed, in one process only",
        )

    def _recover(self) -> None:
        """Brings to an end what killed and crashed saves began."""
        try:
            list_announced(self._storage, self._directory)
            sweep_leftovers(self._storage, self._directory)
        except StorageError as error:
            warn(f"leftovers of crashed saves could not be removed: {error}")

    def _warn_of_unlisted(self) -> None:
        if self._listing.restorable() is not None:
            return
        unlisted = numbered(self._storage, self._prefix)
        if unlisted:
            warn(
                f"no `checkpoint` file names the checkpoints in {self._directory}, the newest of which is "
                f"{unlisted[-1]}, so restore_or_initialize() restores none of them: call adopt_checkpoints() first to go on "
                "from them, or use another directory"
            )
        if is_saved_model(self._storage, self._directory):
            warn(
                f"{self._directory} is a SavedModel, and a manager restores none: to begin with its weights, call "
                "milepost.load_weights(model, directory) before restore_or_initialize()"
            )

    def _is_too_early(self, step: int, check_interval: bool) -> bool:
        last, interval = self._last_checkpoint_step, self._checkpoint_interval
        if last is None or interval is None:
            return False
        return step == last or (check_interval and step < last + interval)

    def _with(self, options: CheckpointOptions | None) -> CheckpointOptions:
        options = resolved(options or self._options)
        options.storage = options.storage or self._storage
        return options

    def _publish(self, path: str, durable: bool) -> None:
        """Records a checkpoint that has been saved, and deletes what is no longer to be kept."""
        with self._lock:
            self._listing.add(path)
            self._latest, self._must_look = path, False
            self._listing.record(path)
            if not durable:
                return  # The older ones may be all that a power cut leaves.
            try:
                self._delete_old(path)
            except StorageError as error:
                warn(f"{path} is saved, but older checkpoints could not be removed: {error}")

    def _delete_old(self, latest: str) -> None:
        decision = self._policy.apply(self._listing.managed, self._listing.last_preserved)
        if len(decision.keep) == len(self._listing.managed):
            return
        self._listing.last_preserved = decision.last_preserved
        self._listing.managed = (*decision.delete, *decision.keep)
        doomed = [each.path for each in decision.delete if self._listing.is_own(each.path)]
        try:
            remove_bundles(self._storage, doomed)
        finally:
            self._listing.drop({path for path in doomed if not is_left(self._storage, path)})
        self._listing.drop({each.path for each in decision.delete})
        self._listing.record(latest)

    def _none_is_good(self, problems: list[MilepostError]) -> MilepostError:
        all_missing = all(isinstance(problem, CheckpointNotFoundError) for problem in problems)
        kind = CheckpointNotFoundError if all_missing else CorruptCheckpointError
        return kind(
            "none of the checkpoints that the state file names can be restored",
            file=os.path.join(self._directory, STATE_FILE),
            found="; ".join(f"{problem.problem} ({problem.file})" for problem in problems),
            remedy="put a good checkpoint back, or delete the state file to start anew",
        )


def _without(paths: set[str], state: CheckpointState | None) -> CheckpointState | None:
    """What is listed, without some checkpoints."""
    left = [] if state is None else [path for path in state.newest_first() if path not in paths]
    return CheckpointState(left[0], tuple(reversed(left))) if left else None
