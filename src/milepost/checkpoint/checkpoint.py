"""`Checkpoint`: the root of an object graph, which saves and restores it."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from milepost.checkpoint import in_memory
from milepost.checkpoint.arguments import check_clashes, check_object, check_root, followed, warn_of_copy
from milepost.checkpoint.names import PRIVATE, check_name
from milepost.checkpoint.sessions import ScaffoldSaver, SessionSaver, in_session, or_with_session
from milepost.checkpoint.tracing import RESTORE_OUTSIDE, as_written, is_traced, refuse_if_traced
from milepost.collector import collection_paused
from milepost.deferred.identity import last_restore
from milepost.deferred.table import admit
from milepost.engine.layouts.steps import Step
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.engine.translation import SAVE_COUNTER, Names, Rename, translation
from milepost.errors import UnsupportedError
from milepost.graph import Tracked, Variable
from milepost.graph.adapter import adapter_during, adapter_of
from milepost.graph.containers import hold_state, wrap
from milepost.graph.contract.operation import Operation
from milepost.graph.frameworks import require
from milepost.graph.module import NOW_NUMBERS, UNTRACKED
from milepost.graph.plain.places import StateHolder, Unsaveable
from milepost.graph.plain.values import PLAIN
from milepost.graph.remedies import forgotten_init
from milepost.graph.traversal import live_children, walk
from milepost.graph.trees.structure import is_tuple
from milepost.restoring.load import load_into
from milepost.restoring.status import InitializationOnlyStatus, LoadStatus
from milepost.saving.background import BackgroundWriter
from milepost.saving.run_save import ListedSave, Save, record_latest
from milepost.saving.snapshot import SnapshotMemory
from milepost.series.guard import SeriesGuard
from milepost.series.leftovers import sweep_quietly
from milepost.series.removal import finish_removals
from milepost.series.series import list_announced
from milepost.series.state_file import check_recordable, state_of
from milepost.storage import MemoryStorage
from milepost.storage.paths import check_has_file_name, plain_path

PathLike = str | os.PathLike[str]


class _State:
    """The internal state of a checkpoint, which is not in the object graph.

    Attributes:
        root: The root that was given, which may be a weak reference, or None.
    """

    def __init__(self, root: Any, arguments: set[str]) -> None:
        self.root = root
        self.arguments = arguments
        self.writer = BackgroundWriter()
        self.snapshots = SnapshotMemory()
        self.guard = SeriesGuard()
        self.session_saver: SessionSaver | None = None

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self.root, weakref.ref):
            raise UnsupportedError(
                "a checkpoint whose root is a weak reference cannot be copied or pickled",
                remedy="make a new Checkpoint of the root object itself",
            )
        return self.__dict__


class Checkpoint(ScaffoldSaver, Tracked, StateHolder):
    """Saves and restores every value that can be reached from a group of objects.

    Saved and live values are matched by the names that lead to them: names of arguments and attributes, positions in
    lists, keys of dicts. Restoration is *deferred* for objects that do not exist yet: they get their saved values when
    they are attached.

    Args:
        root: An object that becomes the root of the object graph, instead of this checkpoint. A ``weakref.ref`` to an
            object does not keep it alive.
        **kwargs: The objects to save, which become attributes: `Module`, `Variable`, arrays, other checkpoints, objects
            of the supported frameworks, numbers, text and None, and lists, dicts, tuples and named tuples of them.

    Raises:
        UntrackableError: A ``ValueError``: an argument cannot be saved, or its name is that of a method or of another
            child of ``root``.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(3))
        >>> path = checkpoint.save(directory + "/ckpt")
        >>> path.endswith("/ckpt-1")
        True
        >>> fresh = milepost.Checkpoint(step=milepost.Variable(0))
        >>> status = fresh.restore(path).assert_consumed()
        >>> int(fresh.step)
        3

        Numbers, text and None in a checkpoint are saved and restored with their types:

        >>> checkpoint = milepost.Checkpoint(epoch=3, history={"loss": [0.5, 0.25]}, best=None)
        >>> path = checkpoint.write(directory + "/plain")
        >>> fresh = milepost.Checkpoint(epoch=0, history={}, best=0.0)
        >>> status = fresh.read(path).assert_consumed()
        >>> fresh.epoch, fresh.history, fresh.best
        (3, DictWrapper({'loss': ListWrapper([0.5, 0.25])}), None)

        Editors and type checkers know the attributes that a subclass declares, and report all others as mistakes, such
        as ``checkpoint.restor(path)``. To turn this off for a variable, annotate it as ``Any``.

        >>> class Training(milepost.Checkpoint):
        ...     step: milepost.Variable
        >>> training = Training(step=milepost.Variable(0))
        >>> int(training.step.assign_add(1))
        1
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        for name in kwargs:
            check_name(type(self), name)
        weak = isinstance(root, weakref.ref)
        if root is not None:
            root = root if weak else wrap(root)
            hold_state(root)
            check_root(followed(root))
            kwargs["root"] = root
        self.__dict__[PRIVATE] = _State(root, set(kwargs))
        for name in sorted(kwargs):
            value = wrap(kwargs[name])
            if weak and value is root:
                self.__dict__[name] = value
                continue
            if name != SAVE_COUNTER:
                check_object(name, value)
                warn_of_copy(name, value)
            setattr(self, name, value)
        if root is not None:
            check_clashes(followed(root), self._private.arguments, self.__dict__)

    _internal = frozenset({PRIVATE, UNTRACKED, NOW_NUMBERS})

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) in PLAIN or adapter_of(value) is not None:
            check_name(type(self), name)
        value = wrap(value)
        hold_state(value)
        if type(value) in PLAIN or is_tuple(type(value)):
            value = admit(self, name, value)
        super().__setattr__(name, value)

    @property
    def save_counter(self) -> Variable:
        """The number of calls of `save`: a scalar int64 variable that is saved and restored with the other values."""
        counter: Variable | None = self.__dict__.get(SAVE_COUNTER)
        if counter is None:
            new = Variable(np.int64(0), name=SAVE_COUNTER, trainable=False)
            root = self._private.root
            counter = self.__dict__[SAVE_COUNTER] = admit(self if root is None else followed(root), SAVE_COUNTER, new)
        return counter

    @as_written
    @takes_options("save")
    @or_with_session(SessionSaver.save)
    def save(self, path: PathLike, options: CheckpointOptions | None = None) -> str:
        """Saves a checkpoint under the next number, and records it as the latest of its directory.

        The checkpoint is durable when this returns; with ``enable_async``, after `sync`, because the call returns earlier.

        Args:
            path: The path of the files, without number and extension. Missing directories are made.
            options: How to save.

        Returns:
            The path of the checkpoint, ``<path>-<save_counter>``, for `restore`.

        Raises:
            CheckpointExistsError: The directory has checkpoints of this name, and this object has restored none of
                them.
            UntrackableError: An object cannot be saved as it is held.
            UnsupportedError: The path has no file name, as one that ends with a separator, or the call is inside a ``tf.function``.
            CoordinationError: One of several processes failed, did not answer, or holds other objects or values. No
                process has saved anything.
            StateFileError: The state file of the directory is malformed.
            StorageError: The files cannot be written. Existing files are unchanged.
            AfterCommitError: The checkpoint is saved and can be restored, but a later step failed.
        """
        options = resolved(options)
        with self._private.writer.exclusive(options.process_timeout):
            check_has_file_name("path", plain_path(path))
            counter, is_nested = self.save_counter, self._private.writer.is_running
            before = int(counter)
            save = ListedSave(f"{plain_path(path)}-{before + 1}", options, record_latest)
            try:
                counter.assign_add(1)
                return self._write_numbered(save)
            except BaseException:
                goes_on = self._private.writer.is_running and not is_nested  # Ctrl-C came when the thread had begun
                if not (goes_on or save.is_committed) and int(counter) != before:
                    counter.assign_sub(1)
                raise

    @as_written
    @takes_options("save")
    def write(self, path: PathLike, options: CheckpointOptions | None = None) -> str:
        """Saves a checkpoint under exactly this path, without a number, and does not change the state file of the directory.

        Inside a ``tf.function``, this adds an operation that saves each time the function runs.

        Args:
            path: The path of the files, without extension. An existing checkpoint is replaced atomically.
            options: How to save.

        Returns:
            ``path`` as a string, for `read`. Inside a ``tf.function``, a tensor of it.

        Raises:
            UntrackableError: An object cannot be saved as it is held.
            UnsupportedError: The path has no file name: it is empty, ends with a separator, or its last part is ``.`` or ``..``.
            CoordinationError: As for `save`.
            StorageError: The files cannot be written. Existing files are unchanged.
        """
        options = resolved(options)
        if is_traced():
            require("tensorflow")
            from milepost.adapters.tensorflow.tracing import write_in_every_run

            objects = walk(self._view()).objects
            return write_in_every_run(lambda path, use: self._write_with(path, options, use), path, objects)  # type: ignore[no-any-return]
        return self._write_with(path, options)

    @as_written
    @takes_options("restore")
    @or_with_session(SessionSaver.restore)
    def restore(
        self,
        path: PathLike | None,
        options: CheckpointOptions | None = None,
        *,
        rename: Rename = (),
        ignore: Names = (),
        only: Names | None = None,
        cast: bool | Names = False,
        skip_mismatch: bool = False,
        convert: Sequence[Step] = (),
    ) -> LoadStatus:
        """Restores a checkpoint that `save` saved. Objects that do not exist yet get their values when they are attached.

        Args:
            path: A path that `save` or `milepost.latest_checkpoint` returned, the directory of a SavedModel, or a
                file or directory of PyTorch, safetensors, Flax or Orbax. With None, nothing is restored.
            options: How to restore.
            rename: The live names of saved values. Pass a mapping of beginnings of names, such as
                ``{"backbone": "model/encoder"}``: the longest one that matches is used, and ``*`` stands for one name. Or
                pass a list of pairs of a regular expression, as text or compiled, and its replacement. Or pass a function
                from a saved name to a live name, or to None to leave the value out. A saved name is what
                `milepost.list_variables` shows, without ``/.ATTRIBUTES/...``.
            ignore: Live names of values that the restore does not change, such as ``"model/head"``. A name includes
                everything below it; ``*`` stands for any text; ``.`` and ``/`` are the same. Saved values of these
                names are left out. A slot variable is left out with its variable, and with the whole optimizer.
            only: Live names, as for ``ignore``. The restore changes no other values. Slot variables are restored with their
                optimizer, not with their variable.
            cast: Whether numbers are converted to the element type of the live object: for all values, or for some live names. The
                report has the largest relative error of each. A number that the new type does not have is refused.
            skip_mismatch: Whether a live object keeps its value if the saved one has another shape, as if ``ignore`` named it. A warning
                lists these. Otherwise they are an error. An object that is made later must fit.
            convert: Steps of `milepost.layouts` that lay out saved values otherwise, such as q, k and v that become qkv. They have
                saved names, and ``rename`` gets the names of what they make.

        Returns:
            A status with assertions and a full report.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: The checkpoint is damaged. Nothing was changed.
            MismatchError: A saved value has a different shape or dtype than the live object, or a number cannot be converted.
                Nothing was changed.
            UnsupportedError: The call is inside a ``tf.function``, an argument cannot be used, or two saved values would get the
                same name.

        Example:
            >>> import milepost, tempfile
            >>> saved = milepost.Checkpoint(encoder=milepost.Variable([1.0]), head=milepost.Variable([2.0, 3.0]))
            >>> path = saved.save(tempfile.mkdtemp() + "/ckpt")
            >>> new = milepost.Checkpoint(backbone=milepost.Variable([0.0]), head=milepost.Variable([0.0]))
            >>> status = new.restore(path, rename={"encoder": "backbone"}, ignore="head")
            >>> new.backbone.numpy(), new.head.numpy()
            (array([1.], dtype=float32), array([0.], dtype=float32))
            >>> status.assert_consumed().report().counts()["ignored"]
            2
        """
        options = resolved(options)
        leaves_alone = translation(rename, ignore, only, cast).leaves_alone
        refuse_if_traced("a restore", RESTORE_OUTSIDE)
        if path is None:
            return InitializationOnlyStatus(self._view)
        with self._private.writer.exclusive(options.process_timeout):
            is_new = SAVE_COUNTER not in self.__dict__
            counter = self.save_counter  # made first, so that it is restored with the other values, or not at all
            try:
                status = self.read(
                    path,
                    options,
                    rename=rename,
                    ignore=ignore,
                    only=only,
                    cast=cast,
                    skip_mismatch=skip_mismatch,
                    convert=convert,
                )
            except BaseException:
                if is_new and not last_restore(counter):
                    del self.__dict__[SAVE_COUNTER]
                raise
            if status.belongs_to_series and not leaves_alone(SAVE_COUNTER):
                self._private.guard.restored(storage_of(options), plain_path(path))
            return status

    @as_written
    @takes_options("restore")
    def read(
        self,
        path: PathLike | None,
        options: CheckpointOptions | None = None,
        *,
        rename: Rename = (),
        ignore: Names = (),
        only: Names | None = None,
        cast: bool | Names = False,
        skip_mismatch: bool = False,
        convert: Sequence[Step] = (),
    ) -> LoadStatus:
        """Restores a checkpoint that `write` wrote. Unlike `restore`, this makes no `save_counter` and does
        not let later saves add to the series that the checkpoint may belong to.

        Args:
            path: A path that `write` returned, or any path that `restore` accepts. With None, nothing is restored.
            options: How to restore.
            rename: As for `restore`.
            ignore: As for `restore`.
            only: As for `restore`.
            cast: As for `restore`.
            skip_mismatch: As for `restore`.
            convert: As for `restore`.

        Returns:
            A status with assertions and a full report.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: The checkpoint is damaged. Nothing was changed.
            MismatchError: A saved value has a different shape or dtype than the live object. Nothing was changed.
            UnsupportedError: The call is inside a ``tf.function``.
        """
        refuse_if_traced("a restore", RESTORE_OUTSIDE)
        changes = translation(rename, ignore, only, cast, skip_mismatch, convert)
        settings = resolved(options)
        if path is None:
            return InitializationOnlyStatus(self._view)
        with self._private.writer.exclusive(settings.process_timeout):
            status = load_into(plain_path(path), self._view, settings, changes)
        if self._private.root is not None:
            from milepost.checkpoint.below_root import warn_if_below  # most checkpoints have names, and no root

            warn_if_below(followed(self._private.root), status, plain_path(path))
        return status

    def state_dict(self) -> dict[str, Any]:
        """Everything that a save would write, as a dict in memory, so that a trainer or another library can hold this checkpoint.

        A child named ``state_dict`` hides this method.

        Returns:
            By key, each value as an array of NumPy, or as ``bytes`` for a scalar string such as the object graph. The arrays are copies.

        Raises:
            UntrackableError: An object cannot be saved as it is held.
            UnsupportedError: Other processes hold parts of an array.

        Example:
            >>> import milepost
            >>> state = milepost.Checkpoint(step=milepost.Variable(3)).state_dict()
            >>> fresh = milepost.Checkpoint(step=milepost.Variable(0))
            >>> status = fresh.load_state_dict(state).assert_consumed()
            >>> int(fresh.step)
            3
        """
        storage = MemoryStorage()
        self.write(in_memory.PREFIX, CheckpointOptions(storage=storage))
        return in_memory.arrays_in(storage)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> LoadStatus:
        """Restores the result of `state_dict`, as `read` restores a file. A child of this name hides this method.

        Args:
            state_dict: The result of `state_dict`.

        Returns:
            A status with assertions and a full report.

        Raises:
            UnsupportedError: The argument is not such a dict.
            MismatchError: A saved value has a different shape or dtype than the live object. Nothing was changed.
        """
        return self.read(in_memory.PREFIX, CheckpointOptions(storage=in_memory.storage_with(state_dict)))

    def sync(self) -> None:
        """Waits for the asynchronous save in progress, if any, and raises its error."""
        self._private.writer.wait(time.monotonic())

    @property
    def _session_saver(self) -> SessionSaver:  # type: ignore[override]  # made when it is first asked for
        state = self._private
        if state.session_saver is None:
            state.session_saver = SessionSaver(self._view)
        return state.session_saver

    @property
    def _private(self) -> _State:
        state: _State | None = self.__dict__.get(PRIVATE)
        if state is None:
            raise forgotten_init(self)
        return state

    def _view(self) -> Operation:
        """Begins an operation at the object of node 0, with the edges attached to it."""
        root = self._private.root
        if root is None:
            return Operation(self)
        root = followed(root)
        operation = Operation(root)
        adapter = adapter_during(operation, self)
        assert adapter is not None, "a Checkpoint has an adapter"
        attached = list(live_children(operation, adapter, self))
        names = {"root", *(name for name, _ in attached)}
        if isinstance(self.__dict__.get("root"), weakref.ref):
            attached.insert(0, ("root", root))
        others = [pair for pair in adapter.children(self) if pair[0] not in names and type(pair[1]) not in PLAIN]
        operation.attached = [*attached, *((name, Unsaveable(value)) for name, value in others)]
        return operation

    def _write_numbered(self, save: ListedSave) -> str:
        """Writes a checkpoint of a series, unless the series is another run's, and lists it in its directory."""
        refuse_if_traced("a save")
        storage, guard = save.storage, self._private.guard
        with save.together():
            check_recordable(save.prefix)
            if save.leads and not save.options.overwrite:
                guard.check(storage, save.prefix)
                save.check = lambda: guard.check(storage, save.prefix, at_commit=True)
            if save.leads and not guard.is_own(storage, save.prefix):
                directory = os.path.dirname(save.prefix)
                list_announced(storage, directory)
                finish_removals(storage, directory)
                state_of(storage, directory)  # raises an error if the state file is malformed
                sweep_quietly(storage, directory)
            save.committed = guard.on_commit(storage, save.prefix)
            return self._run(save)

    @as_written
    def _write(self, path: PathLike, options: CheckpointOptions | None = None) -> str:
        """Called by TensorFlow's own ``CheckpointManager`` when this is its checkpoint."""
        return self.write(path, options)

    @as_written
    def _write_with(self, path: PathLike, options: CheckpointOptions, session: Any = None) -> str:
        """Writes as `write` does, perhaps with what a session of TensorFlow 1 holds (`Operation.session`)."""
        check_has_file_name("path", plain_path(path))
        with self._private.writer.exclusive(options.process_timeout):
            save = Save(plain_path(path), options)
            with save.together():
                return self._run(save, session)

    def _run(self, save: Save, session: Any = None) -> str:
        """Saves, now or later on another thread. Its callers keep other threads from saving through this checkpoint."""
        # One pause covers both parts of a quick save. A collection between them would visit the whole plan.
        with save.begin(self._view), collection_paused() as pause:
            save.read(in_session(self._view, session))
            if save.options.is_async:
                # What the running save calls may save too, while that save still writes from the memory.
                is_nested = self._private.writer.is_running
                save.copy(SnapshotMemory() if is_nested else self._private.snapshots)
                self._private.writer.submit(save.run, None if save.hangs_after is None else save.hanging)
            else:
                self._private.snapshots.release()
                if not save.is_quick:
                    pause.end()
                save.run()
        return save.prefix


# Functions for managers and trees of JAX. They are not methods, because no child of a checkpoint can have the name of a
# method.


def exclusive(checkpoint: Checkpoint, options: CheckpointOptions | None = None) -> AbstractContextManager[None]:
    """Keeps other threads from saving and restoring through a checkpoint.

    Args:
        checkpoint: The checkpoint.
        options: They say how long to wait for other threads.

    Raises:
        MilepostError: The running save has failed.
        InProgressError: Another thread did not end in time.
    """
    return checkpoint._private.writer.exclusive(resolved(options).process_timeout)


def settle(checkpoint: Checkpoint) -> None:
    """Waits for the asynchronous save in progress as `Checkpoint.sync` does, but no further for one that hangs already."""
    checkpoint._private.writer.wait()


def is_saving(checkpoint: Checkpoint) -> bool:
    """Whether an asynchronous save is in progress."""
    return checkpoint._private.writer.is_running


def write_numbered(checkpoint: Checkpoint, save: ListedSave) -> str:
    """Saves a numbered checkpoint, perhaps later and on another thread. Returns its prefix."""
    return checkpoint._write_numbered(save)


def view_of(checkpoint: Checkpoint) -> Operation:
    """Begins an operation at the object of node 0 of a checkpoint, with the edges attached to it."""
    return checkpoint._view()


def root_of(checkpoint: Checkpoint) -> Any:
    """The root of a checkpoint, or None if the checkpoint itself is the root."""
    root = checkpoint._private.root
    return None if root is None else followed(root)


def set_root(checkpoint: Checkpoint, root: Any) -> None:
    """Sets the object of node 0. Unlike a root that is passed to `Checkpoint`, it is not a child."""
    checkpoint._private.root = root
