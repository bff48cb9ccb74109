"""`Checkpoint`: the root of an object graph, which saves and restores it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from milepost.bundle import index_path
from milepost.checkpoint.session_saver import SessionSaver, is_session
from milepost.engine.background import BackgroundWriter
from milepost.engine.identity import last_restore
from milepost.engine.load import load_into, saved_model_variables, storage_of
from milepost.engine.options import CheckpointOptions
from milepost.engine.processes import claim_path
from milepost.engine.save import execute_save, plan_save, snapshot
from milepost.engine.state_file import CheckpointState, record_state
from milepost.engine.status import InitializationOnlyStatus, LoadStatus
from milepost.errors import CheckpointExistsError, UntrackableError
from milepost.graph import Tracked, Variable
from milepost.graph.adapter import adapter_of
from milepost.graph.containers import wrap
from milepost.graph.remedies import forgotten_init, remedy_for
from milepost.graph.traversal import live_children
from milepost.graph.trees import is_empty_tree, is_functional
from milepost.graph.waiting import admit

_COUNTER = "save_counter"
_PRIVATE = "_checkpoint_state"

PathLike = str | os.PathLike[str]


class _State:
    """What a checkpoint knows about itself; no part of the object graph."""

    def __init__(self, root: Any, arguments: set[str]) -> None:
        self.root = root
        self.arguments = arguments
        self.writer = BackgroundWriter()
        self.restored = False
        self.written: set[str] = set()
        self.session_saver: SessionSaver | None = None


class Checkpoint(Tracked):
    """Groups trackable objects, and saves and restores every value reachable from them.

    Values are matched by the names of the edges that lead to them: names of arguments and attributes, positions in
    lists, keys of dicts. Objects that do not exist yet get their values when they are attached.

    Args:
        root: An object whose own edges become those of the root node, instead of this checkpoint's.
        **kwargs: Trackable objects: `Module`, `Variable`, arrays, other checkpoints, objects of any framework that
            milepost has an adapter for, and lists, dicts, tuples and named tuples of them.

    Raises:
        UntrackableError: A ``ValueError``: an argument is not trackable, or its name is taken by another child of
            ``root``.

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
    """

    def __init__(self, root: Any = None, **kwargs: Any) -> None:
        if root is not None:
            root = wrap(root)
            if adapter_of(root) is None:
                raise _not_trackable("root", root)
            if is_functional(root):
                raise UntrackableError(
                    "a tree of arrays that never change cannot be the root: a restore would have nowhere to put a new one",
                    key="root",
                    found=f"a {type(root).__name__}",
                    remedy="name it, as in Checkpoint(state=tree), or use milepost.jax.save and restore",
                )
            kwargs["root"] = root
        self.__dict__[_PRIVATE] = _State(root, set(kwargs))
        for name in sorted(kwargs):
            value = wrap(kwargs[name])
            if adapter_of(value) is None and name != _COUNTER and not is_empty_tree(value):
                raise _not_trackable(name, value)
            setattr(self, name, value)
        if root is not None:
            self._check_clashes(root)

    @property
    def save_counter(self) -> Variable:
        """How many times `save` was called, as a scalar int64 variable that is saved and restored with the rest."""
        counter: Variable | None = self.__dict__.get(_COUNTER)
        if counter is None:
            new = Variable(np.int64(0), name=_COUNTER, trainable=False)
            root = self._private.root
            counter = self.__dict__[_COUNTER] = admit(self if root is None else root, _COUNTER, new)
        return counter

    def save(self, file_prefix: PathLike, options: CheckpointOptions | None = None, **of_session: Any) -> str:
        """Saves under the next number, and makes it the latest of its directory.

        Given a session of TensorFlow 1 before the path, it does what Estimators want of a saver
        (`milepost.checkpoint.session_saver`), and ``of_session`` are the arguments for that.

        Args:
            file_prefix: Path of the files, without number and ending; missing directories are made.
            options: How to save.
            **of_session: Nothing, unless a session comes first.

        Returns:
            The checkpoint's path, ``<file_prefix>-<save_counter>``, to be given to `restore`.

        Raises:
            CheckpointExistsError: That checkpoint exists, and this one neither wrote nor restored anything.
            UntrackableError: Something cannot be saved as it is held.
            UnsupportedError: Another process of `torch.distributed` or `jax.distributed` has saved there.
            StorageError: The files could not be written; what was there before still is.
        """
        if is_session(file_prefix):
            return self._session_saver.save(file_prefix, options, **of_session)  # type: ignore[arg-type]
        if of_session:
            raise TypeError(f"save() takes no argument {next(iter(of_session))!r} without a session")
        claim_path(os.path.dirname(os.path.abspath(os.fspath(file_prefix))), options)
        counter = self.save_counter
        self.sync()
        counter.assign_add(1)
        path = f"{os.fspath(file_prefix)}-{int(counter)}"
        try:
            return self._write_numbered(path, options, self._publish)
        except BaseException:
            if os.path.abspath(path) not in self._private.written:
                counter.assign_sub(1)
            raise

    def write(self, file_prefix: PathLike, options: CheckpointOptions | None = None) -> str:
        """Saves under exactly this path, without a number, and leaves the directory's state file alone.

        Args:
            file_prefix: Path of the files, without ending. A checkpoint that is there already is replaced atomically.
            options: How to save.

        Returns:
            ``file_prefix`` as a string, to be given to `read`.

        Raises:
            UntrackableError: Something cannot be saved as it is held.
            UnsupportedError: Another process of `torch.distributed` or `jax.distributed` has saved there.
            StorageError: The files could not be written; what was there before still is.
        """
        claim_path(file_prefix, options)
        return self._write(os.fspath(file_prefix), options or CheckpointOptions(), lambda path: None)

    def restore(self, save_path: PathLike | None, options: CheckpointOptions | None = None) -> LoadStatus:
        """Restores what `save` saved. Values of objects that do not exist yet arrive when those are attached.

        Given a session of TensorFlow 1 before the path, it restores the values that variables have in that. Variables of
        graphs that are restored without one wait for the status's `run_restore_ops` or `initialize_or_restore`.

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
        """
        if is_session(save_path):
            return self._session_saver.restore(save_path, options, CheckpointOptions())  # type: ignore[arg-type]
        if save_path is None:
            return InitializationOnlyStatus(self._view)
        is_new = _COUNTER not in self.__dict__
        counter = self.save_counter  # made before, so that it is restored with the rest or not at all
        try:
            status = self.read(saved_model_variables(os.fspath(save_path), storage_of(options)), options)
        except BaseException:
            if is_new and not last_restore(counter):
                del self.__dict__[_COUNTER]
            raise
        self._private.restored |= not status.foreign
        return status

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
        """
        self.sync()
        return load_into(os.fspath(save_path), self._view, options or CheckpointOptions())

    def sync(self) -> None:
        """Waits for the asynchronous save in flight, and raises what it raised."""
        self._private.writer.wait()

    def build(self) -> None:
        """Does nothing. Called by TensorFlow 1's ``Scaffold`` when this is its saver, as the next two are."""

    @property
    def saver_def(self) -> None:
        """What TensorFlow 1 would rebuild a saver of operations from: there are none."""
        return

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Takes over an earlier run's list of checkpoints that were saved with a session."""
        self._session_saver.recover_last_checkpoints(checkpoint_paths)

    @property
    def _session_saver(self) -> SessionSaver:
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
        return root, list(live_children(adapter, self)) if adapter is not None else ()

    def _write_numbered(
        self, path: str, options: CheckpointOptions | None, after: Callable[[str, CheckpointOptions], None]
    ) -> str:
        """Writes a checkpoint of a series, unless it would replace one of another run's; then calls ``after``."""
        options = options or CheckpointOptions()
        state = self._private
        known = state.restored or os.path.abspath(path) in state.written
        if not options.overwrite and not known and storage_of(options).is_file(index_path(path)):
            raise CheckpointExistsError(
                "this checkpoint exists, and would be overwritten by a run that did not restore it",
                file=path,
                expected="a number that is not in use",
                found="an earlier run's checkpoint",
                remedy=(
                    "restore the latest checkpoint first, save to another directory, "
                    "or pass CheckpointOptions(overwrite=True)"
                ),
            )

        def record(written: str) -> None:
            state.written.add(os.path.abspath(written))
            after(written, options)

        return self._write(path, options, record)

    def _write(self, path: str, options: CheckpointOptions, after: Callable[[str], None]) -> str:
        self.sync()
        storage = storage_of(options)
        callbacks = _write_callbacks(options)
        plan, arrays = plan_save(*self._view(), options)

        def finish() -> None:
            execute_save(plan, arrays, storage, path, options)
            for call in (after, *callbacks):
                call(path)

        if options.is_async:
            arrays = snapshot(arrays)
            self._private.writer.submit(finish)
        else:
            finish()
        return path

    @staticmethod
    def _publish(path: str, options: CheckpointOptions) -> None:
        record_state(os.path.dirname(path), CheckpointState(path, (path,)), storage=storage_of(options))

    def _check_clashes(self, root: Any) -> None:
        adapter = adapter_of(root)
        children = dict(live_children(adapter, root)) if adapter is not None else {}
        for name in self._private.arguments:
            if name in children and children[name] is not self.__dict__[name]:
                raise UntrackableError(
                    "the root has another child of this name already",
                    key=name,
                    expected="a name that the root does not use, or the same object",
                    found=f"a {type(children[name]).__name__} there, a {type(self.__dict__[name]).__name__} here",
                )


def _write_callbacks(options: CheckpointOptions) -> list[Callable[[str], object]]:
    """The write callbacks as functions of the path."""
    return [_of_path(callback) for callback in options.experimental_write_callbacks or ()]


def _of_path(callback: Callable[..., Any]) -> Callable[[str], object]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(callback).parameters.values()
    count = sum(each.kind in kinds and each.default is each.empty for each in parameters)
    if count > 1:
        raise UntrackableError(
            "a write callback takes no argument, or the path", expected="0 or 1 arguments", found=f"{count} arguments"
        )
    return callback if count else lambda _: callback()


def _not_trackable(name: str, value: Any) -> UntrackableError:
    return UntrackableError(
        "a checkpoint expects its arguments to be trackable objects",
        key=name,
        expected="a Module, Variable, array, Checkpoint, framework object, or a list, dict or tuple of them",
        found=f"{value!r:.80} of type {type(value).__name__}",
        remedy=remedy_for(value),
    )
