"""`Checkpoint`: the root of an object graph, which saves and restores it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from milepost.checkpoint.names import check_name
from milepost.checkpoint.sessions import ScaffoldSaver, SessionSaver, or_with_session
from milepost.checkpoint.tracing import as_written, is_traced, refuse_if_traced, refuse_restore_if_traced
from milepost.deferred.pending import admit
from milepost.engine.background import BackgroundWriter
from milepost.engine.guard import SeriesGuard
from milepost.engine.identity import last_restore
from milepost.engine.leftovers import sweep_quietly
from milepost.engine.load import load_into, storage_of
from milepost.engine.options import CheckpointOptions, resolved
from milepost.engine.processes import claim_path
from milepost.engine.run_save import ListedSave, Save, record_latest
from milepost.engine.save import plan_save, snapshot
from milepost.engine.series import list_announced
from milepost.engine.state_file import check_recordable, get_checkpoint_state
from milepost.engine.status import InitializationOnlyStatus, LoadStatus
from milepost.errors import UnsupportedError, UntrackableError
from milepost.graph import Tracked, Variable
from milepost.graph.adapter import adapter_of, adapter_of_type
from milepost.graph.containers import NoDependency, hold_state, wrap
from milepost.graph.module import NOW_NUMBERS, UNTRACKED
from milepost.graph.plain.places import StateHolder, Unsaveable
from milepost.graph.plain.values import PLAIN
from milepost.graph.remedies import forgotten_init, remedy_for_state
from milepost.graph.traversal import live_children, walk
from milepost.graph.trees.structure import is_empty_tree, is_functional, is_tuple
from milepost.storage.paths import plain_path

_COUNTER = "save_counter"
_PRIVATE = "_checkpoint_state"

PathLike = str | os.PathLike[str]


class _State:
    """What a checkpoint knows about itself; no part of the object graph."""

    def __init__(self, root: Any, arguments: set[str]) -> None:
        self._root = root
        self.arguments = arguments
        self.writer = BackgroundWriter()
        self.guard = SeriesGuard()
        self.session_saver: SessionSaver | None = None

    @property
    def root(self) -> Any:
        """The root that was given, or None.

        Raises:
            UntrackableError: It was given by a weak reference, and does not exist any more.
        """
        return _followed(self._root)

    @root.setter
    def root(self, root: Any) -> None:
        self._root = root

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self._root, weakref.ref):
            raise UnsupportedError(
                "a checkpoint that refers to its root weakly can be neither copied nor pickled",
                remedy="make another Checkpoint, with the root itself",
            )
        return self.__dict__


class Checkpoint(ScaffoldSaver, Tracked, StateHolder):
    """Groups trackable objects, and saves and restores every value reachable from them.

    Values are matched by the names of the edges that lead to them: names of arguments and attributes, positions in
    lists, keys of dicts. Objects that do not exist yet get their values when they are attached.

    Args:
        root: An object whose own edges become those of the root node, instead of this checkpoint's. A ``weakref.ref`` to
            it does not keep it alive.
        **kwargs: What is to be saved: `Module`, `Variable`, arrays, other checkpoints, objects of any framework that
            milepost has an adapter for, numbers, text and None, and lists, dicts, tuples and named tuples of them.

    Raises:
        UntrackableError: A ``ValueError``: an argument is not trackable, or its name is that of a method, or is taken by
            another child of ``root``.

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

        Numbers, text and None that are put into a checkpoint are saved and come back with their types:

        >>> checkpoint = milepost.Checkpoint(epoch=3, history={"loss": [0.5, 0.25]}, best=None)
        >>> path = checkpoint.write(directory + "/plain")
        >>> fresh = milepost.Checkpoint(epoch=0, history={}, best=0.0)
        >>> status = fresh.read(path).assert_consumed()
        >>> fresh.epoch, fresh.history, fresh.best
        (3, DictWrapper({'loss': ListWrapper([0.5, 0.25])}), None)
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        for name in kwargs:
            check_name(type(self), name)
        weak = isinstance(root, weakref.ref)
        if root is not None:
            root = root if weak else wrap(root)
            hold_state(root)
            live = _followed(root)
            if adapter_of(live) is None:
                raise _not_trackable("root", live)
            if is_functional(live):
                raise UntrackableError(
                    "a tree of arrays that never change cannot be the root: a restore would have nowhere to put a new one",
                    key="root",
                    found=f"a {type(live).__name__}",
                    remedy="name it, as in Checkpoint(state=tree), or use milepost.jax.save and restore",
                )
            kwargs["root"] = root
        self.__dict__[_PRIVATE] = _State(root, set(kwargs))
        for name in sorted(kwargs):
            value = wrap(kwargs[name])
            if weak and value is root:
                self.__dict__[name] = value
                continue
            if adapter_of(value) is None and name != _COUNTER and not is_empty_tree(value) and not _is_accepted(value):
                raise _not_trackable(name, value)
            setattr(self, name, value)
        if root is not None:
            self._check_clashes(_followed(root))

    _internal = frozenset({_PRIVATE, UNTRACKED, NOW_NUMBERS})

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
        """How many times `save` was called, as a scalar int64 variable that is saved and restored with the rest."""
        counter: Variable | None = self.__dict__.get(_COUNTER)
        if counter is None:
            new = Variable(np.int64(0), name=_COUNTER, trainable=False)
            root = self._private.root
            counter = self.__dict__[_COUNTER] = admit(self if root is None else root, _COUNTER, new)
        return counter

    @as_written
    @or_with_session(SessionSaver.save)
    def save(self, file_prefix: PathLike, options: CheckpointOptions | None = None) -> str:
        """Saves under the next number, and makes it the latest of its directory.

        Args:
            file_prefix: Path of the files, without number and ending; missing directories are made.
            options: How to save.

        Returns:
            The checkpoint's path, ``<file_prefix>-<save_counter>``, to be given to `restore`.

        Raises:
            CheckpointExistsError: The directory has checkpoints of this name, and this one has restored none of them.
            UntrackableError: Something cannot be saved as it is held.
            UnsupportedError: This is called inside a ``tf.function``, or another process of `torch.distributed` or
                `jax.distributed` has saved there.
            StateFileError: The directory has a state file that is not understood.
            StorageError: The files could not be written; what was there before still is.
            AfterCommitError: The checkpoint is saved and can be restored; what failed comes after that.
        """
        with self._exclusive():
            counter = self.save_counter
            save = ListedSave(f"{plain_path(file_prefix)}-{int(counter) + 1}", options, record_latest)
            claim_path(save.directory, save.options)
            counter.assign_add(1)
            try:
                return self._write_numbered(save)
            except BaseException:
                if not save.is_committed:
                    counter.assign_sub(1)
                raise

    @as_written
    def write(self, file_prefix: PathLike, options: CheckpointOptions | None = None) -> str:
        """Saves under exactly this path, without a number, and leaves the directory's state file alone.

        Inside a ``tf.function`` this adds an operation that saves whenever the function runs.

        Args:
            file_prefix: Path of the files, without ending. A checkpoint that is there already is replaced atomically.
            options: How to save.

        Returns:
            ``file_prefix`` as a string, to be given to `read`; inside a ``tf.function``, a tensor of it.

        Raises:
            UntrackableError: Something cannot be saved as it is held.
            UnsupportedError: Another process of `torch.distributed` or `jax.distributed` has saved there.
            StorageError: The files could not be written; what was there before still is.
        """
        options = resolved(options)
        if is_traced():
            from milepost.adapters.tensorflow.tracing import write_in_every_run

            objects = walk(*self._view()).objects
            return write_in_every_run(lambda path: self.write(path, options), file_prefix, objects)  # type: ignore[no-any-return]
        save = Save(plain_path(file_prefix), options)
        claim_path(save.place, save.options)
        return self._run(save)

    @as_written
    @or_with_session(SessionSaver.restore)
    def restore(self, save_path: PathLike | None, options: CheckpointOptions | None = None) -> LoadStatus:
        """Restores what `save` saved. Values of objects that do not exist yet arrive when those are attached.

        Args:
            save_path: What `save` or `milepost.latest_checkpoint` returned, a SavedModel's directory, or a file or
                directory of PyTorch, safetensors or Orbax. None restores nothing.
            options: How to restore.

        Returns:
            A status with assertions and a full report.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged; nothing was changed.
            MismatchError: A saved value has another shape or dtype than the live object; nothing was changed.
            UnsupportedError: This is called inside a ``tf.function``.
        """
        options = resolved(options)
        refuse_restore_if_traced()
        if save_path is None:
            return InitializationOnlyStatus(self._view)
        with self._exclusive():
            is_new = _COUNTER not in self.__dict__
            counter = self.save_counter  # made before, so that it is restored with the rest or not at all
            try:
                status = self.read(save_path, options)
            except BaseException:
                if is_new and not last_restore(counter):
                    del self.__dict__[_COUNTER]
                raise
            if not status.foreign:
                self._private.guard.restored(storage_of(options), plain_path(save_path))
            return status

    @as_written
    def read(self, save_path: PathLike, options: CheckpointOptions | None = None) -> LoadStatus:
        """Restores what `write` wrote: like `restore`, but takes no account of numbers.

        Args:
            save_path: What `write` returned.
            options: How to restore.

        Returns:
            A status with assertions and a full report.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged; nothing was changed.
            MismatchError: A saved value has another shape or dtype than the live object; nothing was changed.
            UnsupportedError: This is called inside a ``tf.function``.
        """
        refuse_restore_if_traced()
        with self._exclusive():
            return load_into(plain_path(save_path), self._view, resolved(options))

    def sync(self) -> None:
        """Waits for the asynchronous save in flight, and raises what it raised."""
        self._private.writer.wait()

    def _exclusive(self) -> AbstractContextManager[None]:
        """Keeps other threads from saving and restoring, and waits for the save in flight; raises what it raised."""
        return self._private.writer.exclusive()

    @property
    def _session_saver(self) -> SessionSaver:  # type: ignore[override]  # made when it is first asked for
        state = self._private
        if state.session_saver is None:
            state.session_saver = SessionSaver(self._view)
        return state.session_saver

    @property
    def _private(self) -> _State:
        state: _State | None = self.__dict__.get(_PRIVATE)
        if state is None:
            raise forgotten_init(self)
        return state

    def _view(self) -> tuple[Any, Sequence[tuple[str, Any]]]:
        """The object that node 0 stands for, and edges that it has beside its own."""
        root = self._private.root
        if root is None:
            return self, ()
        adapter = adapter_of(self)
        assert adapter is not None, "a Checkpoint has an adapter"
        attached = list(live_children(adapter, self))
        names = {"root", *(name for name, _ in attached)}
        if isinstance(self.__dict__.get("root"), weakref.ref):
            attached.insert(0, ("root", root))
        others = [pair for pair in adapter.children(self) if pair[0] not in names and type(pair[1]) not in PLAIN]
        return root, [*attached, *((name, Unsaveable(value)) for name, value in others)]

    def _write_numbered(self, save: ListedSave) -> str:
        """Writes a checkpoint of a series, unless that is another run's, and puts it on the list of its directory."""
        storage = storage_of(save.options)
        guard = self._private.guard
        check_recordable(save.path)
        if not save.options.overwrite:
            guard.check(storage, save.path)
        if not guard.is_own(storage, save.path):
            directory = os.path.dirname(save.path)
            list_announced(storage, directory)
            get_checkpoint_state(directory, storage=storage)  # raises if nobody understands it
            sweep_quietly(storage, directory)
        save.committed = guard.on_commit(storage, save.path)
        return self._run(save)

    @as_written
    def _write(self, file_prefix: PathLike, options: CheckpointOptions | None = None) -> str:
        """Called by TensorFlow's own ``CheckpointManager`` when this is its checkpoint."""
        return self.write(file_prefix, options)

    def _run(self, save: Save) -> str:
        refuse_if_traced("a save")
        with self._exclusive():
            plan, arrays = plan_save(*self._view(), save.options)
            if save.options.is_async:
                copies = snapshot(arrays)
                del arrays  # what they lie in may be let go while the copies are written
                self._private.writer.submit(lambda: save.run(plan, copies))
            else:
                save.run(plan, arrays)
        return save.path

    def _check_clashes(self, root: Any) -> None:
        adapter = adapter_of(root)
        children = dict(live_children(adapter, root)) if adapter is not None else {}
        for name in self._private.arguments:
            if name in children and children[name] is not _followed(self.__dict__[name]):
                raise UntrackableError(
                    f"root.{name} already exists, and is another object",
                    key=name,
                    expected="a name that the root does not use, or the same object",
                    found=f"a {type(children[name]).__name__} there, a {type(self.__dict__[name]).__name__} here",
                )


# What managers and trees of JAX need of a checkpoint beside what is public. These are functions, because no child of a
# checkpoint can have the name of a method.


def exclusive(checkpoint: Checkpoint) -> AbstractContextManager[None]:
    """Keeps other threads from saving and restoring through a checkpoint.

    Raises:
        MilepostError: The save that was in flight has failed.
    """
    return checkpoint._exclusive()


def write_numbered(checkpoint: Checkpoint, save: ListedSave) -> str:
    """Saves through a checkpoint as one of a series, perhaps later and on another thread; returns the path."""
    return checkpoint._write_numbered(save)


def view_of(checkpoint: Checkpoint) -> tuple[Any, Sequence[tuple[str, Any]]]:
    """The object that node 0 of a checkpoint stands for, and edges that it has beside its own."""
    return checkpoint._view()


def root_of(checkpoint: Checkpoint) -> Any:
    """The object whose edges are those of node 0, or None if these are the checkpoint's own."""
    return checkpoint._private.root


def set_root(checkpoint: Checkpoint, root: Any) -> None:
    """Has another object stand for node 0, which, unlike a root that is given to `Checkpoint`, is no child."""
    checkpoint._private.root = root


def _is_accepted(value: Any) -> bool:
    return type(value) in PLAIN or type(value) is NoDependency or is_tuple(type(value))


def _followed(root: Any) -> Any:
    if not isinstance(root, weakref.ref):
        return root
    live = root()
    if live is None:
        raise UntrackableError(
            "the root does not exist any more", key="root", remedy="keep the object that the weak reference refers to"
        )
    return live


def _not_trackable(name: str, value: Any) -> UntrackableError:
    adapter = adapter_of_type(type(value))
    omission = adapter.omission(value) if adapter is not None else None
    remedy = omission.remedy if omission is not None else ""
    if not remedy:
        remedy = "name it, as in Checkpoint(epoch=3)" if type(value) in PLAIN else remedy_for_state(value)
    return UntrackableError(
        "a checkpoint expects its arguments to be trackable objects",
        key=name,
        expected="a Module, Variable, array, number, text, Checkpoint, framework object, or a list, dict or tuple of them",
        found=f"{value!r:.80} of type {type(value).__name__}",
        remedy=remedy,
    )
