"""The methods by which a manager lists, ranks, deletes and pins the checkpoints of its series by their numbers."""

from __future__ import annotations

import abc
import time
from typing import Any

from milepost.bundle import index_path
from milepost.checkpoint.checkpoint import PathLike, exclusive
from milepost.checkpoint.output_files import write_files
from milepost.distributed.find import first_decides
from milepost.engine.arguments import wrong
from milepost.errors import CheckpointNotFoundError, UnsupportedError
from milepost.manager.health import Health, HealthState
from milepost.manager.when_to_save import WhenToSave
from milepost.retention import Best, ManagedCheckpoint, Policy
from milepost.retention.by_metric import By, Mode, check_known, ranked
from milepost.retention.plan import RetentionPlan
from milepost.retention.policy import AnyOf
from milepost.series.metadata import plain_metrics
from milepost.series.pins import pin, pinned_in, unpin
from milepost.series.removal import is_left
from milepost.series.series import split_number


class ByStep(WhenToSave):
    """The methods that `CheckpointManager` and `milepost.jax.TreeManager` share.

    Those that tell when to save are inherited from `WhenToSave`.
    """

    @property
    @abc.abstractmethod
    def latest_checkpoint(self) -> str | None:
        """The path of the newest good checkpoint, or None."""

    @property
    def steps(self) -> list[int]:
        """The numbers of the managed checkpoints, in the order in which they were saved.

        The number of a checkpoint is the training step if the program passes that to ``save()``.
        """
        return [each.step for each in self._series.listing.present]

    @property
    def latest_step(self) -> int | None:
        """The number of `latest_checkpoint`, which is verified; None if there is no good checkpoint of this series."""
        path = self.latest_checkpoint
        if path is None or not self._series.listing.is_own(path):
            return None
        return (split_number(path) or ("", None))[1]

    @property
    def health(self) -> Health:
        """How the saves go: the last good one, and what has failed since and why. It reads no file.

        With several processes, each has its own record. A save that fails on one of them fails on all.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
            >>> print(manager.health)
            idle: last good save none
            >>> path = manager.save(10)
            >>> print(manager.health)
            good: last good save ckpt-10 at ...
        """
        series = self._series
        record = series.record
        failures = record.failures
        state: HealthState = "failing" if failures else "idle" if record.last_good is None else "good"
        if self.is_saving:
            state = "hanging" if record.hangs() else "saving"
        return Health(state, series.last_good, failures, record.consecutive)

    def best_step(self, by: By | None = None, mode: Mode | None = None) -> int | None:
        """The number of the checkpoint with the best value of a metric.

        Args:
            by: The name of a metric that was passed to ``save(metrics=...)``, or a function of all metrics; by default that of the
                first `milepost.retention.Best` in ``keep``.
            mode: ``"min"`` if lower values are better, ``"max"`` if higher ones are; by default as for ``by``.

        Returns:
            The number, or None if no checkpoint has a finite value. Of equal values, the one that was saved first is the best.

        Raises:
            KeyNotFoundError: ``by`` is a name, and the checkpoints have other metrics, but not this one.
            UnsupportedError: Only one argument is given, or none and ``keep`` has no `milepost.retention.Best`. Or ``mode`` is
                neither ``"min"`` nor ``"max"``.
            StorageError: A checkpoint cannot be read, and the reason is not damage.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=5)
            >>> for step, loss in [(10, 0.5), (20, 0.2), (30, 0.4)]:
            ...     path = manager.save(step, metrics={"loss": loss})
            >>> manager.best_step(by="loss", mode="min"), manager.latest_step
            (20, 30)
        """
        series = self._series
        is_asked = by is not None
        if by is None or mode is None:
            rule = _first_best(series.policy.keep)
            if rule is None or by is not None or mode is not None:
                raise UnsupportedError(
                    "best_step() needs the name of a metric, and whether lower or higher is better",
                    expected="best_step(by='loss', mode='min'), or a manager with keep=Best(...)",
                    found=f"by={by!r}, mode={mode!r}, keep={series.policy.keep!r}",
                    remedy="pass both arguments, or make the manager with keep=milepost.retention.Best(...)",
                )
            by, mode = rule.by, rule.mode
        if mode not in ("min", "max"):
            raise wrong("mode", mode, "'min' if lower values are better, or 'max'")
        managed = series.facts(metrics=True)
        if is_asked and isinstance(by, str):
            check_known(by, managed, series.directory)
        for position in ranked(managed, by, mode):
            if series.storage.is_file(index_path(managed[position].prefix)):
                return managed[position].step
        return None

    def metrics(self, step: int) -> dict[str, Any] | None:
        """The metrics that were saved with a checkpoint.

        Args:
            step: The number of the checkpoint.

        Returns:
            The metrics that were passed to ``save(metrics=...)``, as Python numbers; None if there were none.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged.
        """
        return self._series.saved_with(step).metrics

    def metadata(self, step: int) -> Any:
        """The metadata that was saved with a checkpoint.

        Args:
            step: The number of the checkpoint.

        Returns:
            The metadata that was passed to ``save(metadata=...)``, as JSON returns it: tuples are lists, and keys of dicts are text.
            None if there is none.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged.
        """
        return self._series.saved_with(step).metadata

    def files(self, step: int, to: PathLike | None = None) -> dict[str, bytes]:
        """The files that were saved with a checkpoint.

        Args:
            step: The number of the checkpoint.
            to: A directory of this machine, in which the files are written, too. An equal file stays, and another one is not replaced.

        Returns:
            The bytes of each file that was passed to ``save(files=...)``, by its name. The names of files of a directory begin with the name
            of the directory and a slash.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged.
            CheckpointExistsError: ``to`` has another file or a symbolic link under the name of one of them. Nothing was written.
            StorageError: A file cannot be written.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=5)
            >>> path = manager.save(10, files={"tokenizer/vocab.txt": b"a b c"})
            >>> manager.files(10)
            {'tokenizer/vocab.txt': b'a b c'}
        """
        files = self._series.files_of(step)
        if to is not None:
            write_files(files, to)
        return files

    @property
    def last_finite_step(self) -> int | None:
        """The number of the last managed checkpoint that is not marked as not finite, or None. Its data is not verified.

        Only a manager with ``nonfinite`` marks checkpoints. One that nobody has looked at counts as finite.
        """
        return self._series.last_finite_step()

    def nonfinite(self, step: int) -> tuple[str, ...]:
        """The names of the first values that make a checkpoint one that is not finite, as `milepost.KeepLastFinite` says.

        Args:
            step: The number of the checkpoint.

        Returns:
            The names; none if the checkpoint is finite, or was saved by a manager without ``nonfinite``.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged.
        """
        return self._series.saved_with(step).nonfinite

    def delete(self, step: int) -> None:
        """Deletes a checkpoint and its entry in the state file, even if it is the latest or no longer managed.

        If the process is killed meanwhile, the next manager of the directory completes the deletion. With several processes, all of
        them call this, and process 0 deletes.

        Args:
            step: The number of the checkpoint.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            UnsupportedError: The checkpoint is pinned.
            StateFileError: The state file is malformed. Nothing was deleted.
            StorageError: A file cannot be removed. The next manager of the directory tries again.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=5)
            >>> paths = [manager.save(step) for step in (10, 20, 30)]
            >>> manager.delete(20)
            >>> manager.steps
            [10, 30]
        """
        series = self._series
        prefix = series.path_of(step)
        with exclusive(series.checkpoint, series.options):

            def remove() -> bool:
                with series.lock:
                    if not is_left(series.storage, prefix) and step not in self.steps:
                        raise series.no_such(prefix)
                    series.must_look = True  # also if an interrupt comes before it is set below
                    return series.listing.remove(prefix)

            first_decides(series.with_options(None), f"delete {prefix}", remove)
            with series.lock:
                series.must_look = True
                series.metadata.forget(prefix)
                series.listing.drop({prefix})

    @property
    def pinned(self) -> list[int]:
        """The numbers of the checkpoints that are pinned now, in ascending order. The directory is read each time."""
        listing = self._series.listing
        prefixes = pinned_in(self._series.storage, listing.home)
        return sorted((split_number(each) or ("", 0))[1] for each in prefixes if listing.is_own(each))

    def pin(self, step: int) -> None:
        """Keeps a checkpoint from being deleted, until `unpin`.

        No manager of milepost deletes it, in any process, and neither does `milepost.tensorflow1.remove_checkpoint`. A pin is an empty file
        next to the checkpoint, ``<path>.pinned``, which is durable when this returns. TensorFlow's manager ignores it. With several
        processes, all of them call this, and process 0 pins.

        Args:
            step: The number of the checkpoint. It need not be managed.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint, or it was deleted meanwhile.
            StorageError: The file cannot be created.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=1)
            >>> path = manager.save(10)
            >>> manager.pin(10)
            >>> paths = [manager.save(step) for step in (20, 30)]
            >>> manager.steps, manager.pinned
            ([10, 30], [10])
        """
        series = self._series
        prefix = series.path_of(step)

        def make() -> None:
            with series.lock:
                series.must_look |= series.listing.finish_removals()
            try:
                pin(series.storage, prefix)
            except CheckpointNotFoundError:
                raise series.no_such(prefix) from None

        first_decides(series.with_options(None), f"pin {prefix}", make)

    def unpin(self, step: int) -> None:
        """Lets a checkpoint be deleted again. The next save deletes it if nothing else keeps it.

        With several processes, all of them call this.

        Args:
            step: The number of the checkpoint. If it is not pinned, nothing happens.

        Raises:
            StorageError: The pin cannot be removed.
        """
        series = self._series
        prefix = series.path_of(step)
        first_decides(series.with_options(None), f"unpin {prefix}", lambda: unpin(series.storage, prefix))

    def dry_run(self, next_step: int | None = None, metrics: Any = None) -> RetentionPlan:
        """Tells what would be deleted, and why. It deletes nothing.

        Args:
            next_step: Decide as if a checkpoint with this number had just been saved; by default, as things are now.
            metrics: The metrics of that checkpoint.

        Returns:
            One verdict for each managed checkpoint, oldest first. Printing the plan gives one line for each.

        Raises:
            StorageError: A checkpoint cannot be read, and the reason is not damage.

        Example:
            >>> import milepost, tempfile
            >>> from milepost.retention import Best
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(
            ...     checkpoint, tempfile.mkdtemp(), max_to_keep=1, keep=Best(1, by="loss", mode="min")
            ... )
            >>> for step, loss in [(10, 0.5), (20, 0.2), (30, 0.4)]:
            ...     path = manager.save(step, metrics={"loss": loss})
            >>> print(manager.dry_run(next_step=40, metrics={"loss": 0.3}))
            ckpt-20: keep: the best by loss: 0.2
            ckpt-30: delete: not pinned, not the newest, not kept by Best(n=1, by='loss', mode='min')
            ckpt-40: keep: the newest
        """
        series = self._series
        managed = series.facts(metrics=series.policy.uses_metrics)
        if next_step is not None:
            prefix = series.path_of(next_step)
            new = ManagedCheckpoint(prefix, time.time(), plain_metrics(metrics))
            managed = (*(each for each in managed if each.prefix != prefix), new)
        return series.policy.plan(managed, series.listing.last_preserved)

    def reload(self) -> None:
        """Reads the state file again, for a program that uses the checkpoints that another program saves.

        Raises:
            StateFileError: The state file is malformed.
            StorageError: The directory cannot be read.
        """
        series = self._series
        with exclusive(series.checkpoint, series.options), series.lock:
            series.listing.reload()
            series.metadata.forget()
            series.must_look = True


def _first_best(policy: Policy | None) -> Best | None:
    parts = policy.policies if isinstance(policy, AnyOf) else (policy,)
    return next((each for each in parts if isinstance(each, Best)), None)
