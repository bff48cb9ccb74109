"""Sessions of TensorFlow 1: a checkpoint used as a ``Saver``, as `tf.compat.v1.train.Scaffold` takes one.

Everything that a `Checkpoint` has for sessions is here: the methods that only a ``Scaffold`` calls (`ScaffoldSaver`), and what
`Checkpoint.save` and `Checkpoint.restore` do if their first argument is a session (`or_with_session`).

Variables of graphs that are restored without a session get their values by `run_restore_ops` or `initialize_or_restore` of the
status.

Estimators and monitored sessions use `build`, `saver_def`, ``save(session, path, global_step=...)``, ``restore(session,
path)`` and `recover_last_checkpoints` of their saver. Here these save and restore object-based checkpoints under the
same names, ``<path>-<global step>``, and keep the newest five.

Source of the protocol: TensorFlow 2.15, ``session_manager.py``, ``basic_session_run_hooks.py``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from milepost.engine.options import CheckpointOptions, resolved, storage_of
from milepost.engine.progress import array_sizes, reported
from milepost.engine.turns import SAVE, Turn
from milepost.graph.contract.operation import Operation
from milepost.graph.frameworks import require
from milepost.graph.traversal import walk
from milepost.restoring.load import load_into
from milepost.restoring.status import LoadStatus, View
from milepost.saving.save import execute_save, plan_save
from milepost.series.removal import remove_files
from milepost.series.series import is_inside, is_of_series, split_number
from milepost.series.state_file import CheckpointState, record_state
from milepost.storage.paths import check_has_file_name, plain_path

_KEPT: Final = 5
_SESSION_METHODS: Final = ("run", "graph", "as_default")


def is_session(value: object) -> bool:
    """Whether this is a session of TensorFlow 1 rather than a path."""
    return all(hasattr(value, name) for name in _SESSION_METHODS)


def in_session(view: View, use: Any) -> Operation:
    """Begins an operation that reads and assigns variables of graphs in a session, as `milepost.adapters.tensorflow.session.use` says."""
    operation = view()
    if use is not None:
        operation.session = use
        operation.adapters.clear()  # of objects that were met before
    return operation


class SessionSaver:
    """Saves and restores the values that variables of a graph have in a session.

    Args:
        view: Begins an operation at the root.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.last_checkpoints: list[str] = []

    def save(
        self,
        session: Any,
        path: str | os.PathLike[str],
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
        options: CheckpointOptions | None = None,
    ) -> str:
        """Saves, with the arguments of ``tf.compat.v1.train.Saver.save``.

        Args:
            session: The session.
            path: The path of the files, without number and extension.
            global_step: The number: an integer, or a tensor or variable of the session.
            latest_filename: Name of the state file, ``checkpoint`` unless given.
            meta_graph_suffix: Extension of the file that holds the graph.
            write_meta_graph: Whether to write the graph in addition to the values.
            write_state: Whether to record the checkpoint as the latest of its directory, and to delete all but the
                newest five.
            strip_default_attrs: As in TensorFlow. Affects only the file of the graph.
            save_debug_info: As in TensorFlow. Affects only the file of the graph.
            options: How to save.

        Returns:
            The checkpoint's path.

        Raises:
            UnsupportedError: The path has no file name.
        """
        require("tensorflow")
        from milepost.adapters.tensorflow import session as sessions

        options = resolved(options)
        storage = storage_of(options)
        path = plain_path(path)
        check_has_file_name("path", path)
        if global_step is not None:
            is_number = isinstance(global_step, (int, np.integer))
            path = f"{path}-{int(global_step if is_number else session.run(global_step))}"
        with (
            Turn(SAVE, f"the save of {path}", self._view, options.process_timeout),
            sessions.use(session, walk(self._view()).objects) as use,
        ):
            plan, arrays = plan_save(in_session(self._view, use), options)
        with reported(options.progress, "save", path, array_sizes(arrays)):
            execute_save(plan, arrays, storage, path, options)
        if write_meta_graph:
            sessions.write_meta_graph(
                session,
                f"{path}.{meta_graph_suffix}",
                strip_default_attrs=strip_default_attrs,
                save_debug_info=save_debug_info,
            )
        if write_state:
            self.last_checkpoints = [*(each for each in self.last_checkpoints if each != path), path]
            dropped, self.last_checkpoints = self.last_checkpoints[:-_KEPT], self.last_checkpoints[-_KEPT:]
            state = CheckpointState(path, tuple(self.last_checkpoints))
            record_state(os.path.dirname(path), state, latest_filename=latest_filename, storage=storage)
            directory, stem = os.path.dirname(path), (split_number(path) or (path, 0))[0]
            for old in dropped:
                # the list of an Estimator may name the directory from which its own was copied
                if is_inside(storage, directory, old) and is_of_series(
                    os.path.join(directory, os.path.basename(old)), stem
                ):
                    remove_files(storage, old, meta_graph_suffix=meta_graph_suffix)
        return path

    def restore(
        self, session: Any, path: str | os.PathLike[str], options: CheckpointOptions | None = None
    ) -> LoadStatus:
        """Assigns saved values to the variables of a session, initialized or not.

        Raises:
            UnmatchedError: A variable that can be reached was not saved.
        """
        require("tensorflow")
        from milepost.adapters.tensorflow import session as sessions

        with sessions.use(session) as use:
            view = partial(in_session, self._view, use)
            return load_into(plain_path(path), view, resolved(options)).assert_existing_objects_matched()

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Continues the list of an earlier run. Its checkpoints are the oldest, and are deleted first."""
        self.last_checkpoints = list(checkpoint_paths)


class ScaffoldSaver:
    """The methods of a saver that only TensorFlow 1's ``Scaffold`` calls."""

    _session_saver: SessionSaver

    def build(self) -> None:
        """Does nothing, because no operations are needed."""

    @property
    def saver_def(self) -> None:
        """None, because there are no operations from which TensorFlow 1 could rebuild a saver."""
        return

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Continues the list of an earlier run, of checkpoints that were saved with a session."""
        self._session_saver.recover_last_checkpoints(checkpoint_paths)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def or_with_session(with_session: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Lets a method of a checkpoint do what a ``Saver`` does if its first argument is a session.

    Args:
        with_session: The method of `SessionSaver` that is called then, with all arguments.
    """

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def called(self: ScaffoldSaver, *args: Any, **kwargs: Any) -> Any:
            if args and is_session(args[0]):
                return with_session(self._session_saver, *args, **kwargs)
            return method(self, *args, **kwargs)

        return called  # type: ignore[return-value]  # it has the signature of what it wraps

    return decorate
