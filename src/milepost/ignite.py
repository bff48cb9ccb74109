"""PyTorch-Ignite: one line makes ``engine.run()`` resumable at any iteration, and a place for the files of its ``Checkpoint``.

::

    trainer = Engine(step)
    milepost.ignite.attach(trainer, {"model": model, "optimizer": optimizer}, "./run", every_iterations=500, on_sigterm=True)
    trainer.run(loader, max_epochs=10)
"""

from __future__ import annotations

import os as _os
from collections.abc import Callable as _Callable
from collections.abc import Collection as _Collection
from collections.abc import Mapping as _Mapping
from typing import Any as _Any
from typing import Literal as _Literal

import ignite as _ignite  # noqa: F401 - its version is asked for before its names

from milepost.adapters.random_state import global_state as _global_state
from milepost.adapters.random_state import set_global_state as _set_global_state
from milepost.engine.options import CheckpointOptions
from milepost.errors import UnsupportedError as _UnsupportedError
from milepost.errors import warn as _warn
from milepost.graph.frameworks import whole_import as _whole_import
from milepost.manager import CheckpointManager
from milepost.manager.arguments import check_interval as _check_interval
from milepost.manager.committed import OnCommitted as _OnCommitted
from milepost.manager.finite_policy import KeepLastFinite as _KeepLastFinite
from milepost.manager.tolerance import Tolerate as _Tolerate
from milepost.retention import Policy
from milepost.saving.files import Source as _Source
from milepost.trainers import gradients as _gradients
from milepost.trainers import paths as _paths
from milepost.trainers.loaders import LoaderPosition as _LoaderPosition
from milepost.trainers.runs import PathLike as _PathLike
from milepost.trainers.runs import TrainerRun as _TrainerRun

with _whole_import("ignite"):
    from ignite.engine import Engine as _Engine
    from ignite.engine import Events as _Events
    from ignite.engine.deterministic import DeterministicEngine as _DeterministicEngine
    from ignite.handlers.checkpoint import BaseSaveHandler as _BaseSaveHandler

__all__ = ["MilepostSaver", "attach"]


def attach(
    engine: _Any,
    to_save: _Mapping[str, _Any],
    directory: _PathLike,
    *,
    every_iterations: int | None = None,
    every_epochs: int | None = 1,
    every_seconds: float | None = None,
    max_to_keep: int | None = 3,
    keep: Policy | None = None,
    metrics: _Callable[[], _Mapping[str, _Any]] | None = None,
    gradients: bool = False,
    on_sigterm: bool = False,
    on_signal: int | _Collection[int] | None = None,
    grace_seconds: float | None = None,
    continue_ended: bool = False,
    on_failure: _Literal["raise"] | _Tolerate = "raise",
    nonfinite: _Literal["keep_last_finite"] | _KeepLastFinite | None = None,
    on_committed: _OnCommitted | None = None,
    files: _Mapping[str, _Source] | None = None,
    options: CheckpointOptions | None = None,
) -> CheckpointManager:
    """Makes ``engine.run()`` resumable: it saves the run, and continues it in the next process.

    A checkpoint holds the objects, the iteration of the engine, the position in its data, and the random state. So a run that was
    killed and started again computes the same bits as a run that was not interrupted. A save is made right before the next batch is
    read, after all handlers of the previous iteration and epoch.

    Args:
        engine: The ``Engine`` that trains.
        to_save: Objects with ``state_dict`` and ``load_state_dict`` by name, as for ``ignite.handlers.Checkpoint``.
        directory: The directory of the run. Each run has its own.
        every_iterations: Iterations between two saves, or None.
        every_epochs: Epochs between two saves, or None.
        every_seconds: Seconds between two saves, or None.
        max_to_keep: How many of the newest checkpoints to keep, or None to let ``keep`` decide alone.
        keep: Which others to keep, such as ``milepost.retention.Best(3, by="loss", mode="min")``.
        metrics: Returns the metrics of a checkpoint at the end of an epoch, such as ``lambda: evaluator.state.metrics``.
        gradients: Whether to save the gradients of the modules in ``to_save`` too, for loops that accumulate them over several
            iterations.
        on_sigterm: Whether SIGTERM saves the run and ends ``run()``.
        on_signal: Other signals that mean the same, such as ``signal.SIGUSR1``, or several in a list.
        grace_seconds: Seconds after the signal, after which the process ends even if a step or the last save has not. It ends with 128 and
            the number of the signal, and the checkpoint before that save stays. None for no limit.
        continue_ended: Whether a run that ``engine.terminate()`` has ended continues when it is started again. By default it is
            complete, as after ``EarlyStopping``. Pass True for a handler that ends a session and not the run, such as ``TimeLimit``.
        on_failure: What becomes of a save that fails or hangs: ``"raise"`` ends ``run()``, and `milepost.Tolerate` lets it go on, within limits.
        nonfinite: What becomes of a state with NaN or infinity, as for `milepost.CheckpointManager`. `milepost.KeepLastFinite` says whether the run
            continues from the last finite checkpoint.
        on_committed: A function that is told of each checkpoint that is saved, as for `milepost.CheckpointManager`.
        files: Small files to save with each checkpoint, such as ``{"tokenizer": directory}``, as for `milepost.CheckpointManager.save`. They are
            read at each save.
        options: Options of all saves and restores, such as ``CheckpointOptions(enable_async=True)``.

    Returns:
        A manager of the checkpoints, numbered by the iteration. Its ``reload()`` shows what ``run()`` has saved since.

    Raises:
        ArgumentError: A ``ValueError``: an interval is not greater than 0.
        UnsupportedError: ``engine`` is not an ``Engine``, or it is a ``DeterministicEngine``, which changes its loader. Or an argument
            has a type that is not accepted.
    """
    if not isinstance(engine, _Engine) or isinstance(engine, _DeterministicEngine):
        raise _UnsupportedError(
            "attach() makes an ignite Engine resumable",
            expected="an ignite.engine.Engine",
            found=f"a {type(engine).__name__}",
            remedy="use an Engine, which attach() resumes exactly; a DeterministicEngine changes the order of the data",
        )
    _check_interval("every_iterations", every_iterations)
    run = _TrainerRun(
        directory,
        ("objects", "iteration"),
        ("random", "loader"),
        max_to_keep=max_to_keep,
        keep=keep,
        every_epochs=every_epochs,
        every_steps=every_iterations,
        every_seconds=every_seconds,
        on_sigterm=on_sigterm,
        on_failure=on_failure,
        nonfinite=nonfinite,
        on_committed=on_committed,
        files=files,
        on_signal=on_signal,
        grace_seconds=grace_seconds,
        options=options,
    )
    attached = _Attached(run, dict(to_save), metrics, gradients, continue_ended)
    engine.add_event_handler(_Events.STARTED, attached.begin)
    engine.add_event_handler(_Events.GET_BATCH_STARTED, attached.before_batch)
    engine.add_event_handler(_Events.COMPLETED, attached.end)
    engine.add_event_handler(_Events.TERMINATE, attached.terminate)
    engine.add_event_handler(_Events.EXCEPTION_RAISED, attached.fail)
    return run.manager


class MilepostSaver(_BaseSaveHandler):  # type: ignore[misc]  # its type is not known
    """A ``save_handler`` for ``ignite.handlers.Checkpoint``, instead of its ``DiskSaver``.

    Each file that ignite names becomes a directory of that name with a checkpoint in it: durable when the save returns, whole or
    not there, and with checksums.

    Args:
        directory: Where the files are.
    """

    def __init__(self, directory: _PathLike) -> None:
        self._directory = _os.fspath(directory)

    def __call__(self, checkpoint: _Mapping[str, _Any], filename: str, metadata: _Any = None) -> None:
        """Saves a dict. Called by ignite.

        Args:
            checkpoint: The dict.
            filename: The name of the file.
            metadata: Not used.
        """
        _paths.write_path(dict(checkpoint), self._path(filename))

    def remove(self, filename: str) -> None:
        """Removes what was saved. Called by ignite.

        Args:
            filename: The name of the file.
        """
        _paths.remove_path(self._path(filename))

    def load(self, filename: str) -> dict[str, _Any]:
        """Reads what was saved, for ``ignite.handlers.Checkpoint.load_objects(to_load, checkpoint=...)``.

        Args:
            filename: The name of the file, such as ``Checkpoint.last_checkpoint``.

        Returns:
            The dict.

        Raises:
            CheckpointNotFoundError: There is no such file. This is a ``FileNotFoundError``.
            CorruptCheckpointError: The file is damaged.
        """
        loaded: dict[str, _Any] = _paths.read_path(self._path(filename))
        return loaded

    def _path(self, filename: str) -> str:
        return _os.path.join(self._directory, filename)


class _Attached:
    """The handlers of one engine."""

    def __init__(
        self,
        run: _TrainerRun,
        objects: dict[str, _Any],
        metrics: _Callable[[], _Mapping[str, _Any]] | None,
        gradients: bool,
        continue_ended: bool,
    ) -> None:
        self._run = run
        self._objects = objects
        self._metrics = metrics
        self._gradients = gradients
        self._continue_ended = continue_ended
        self._position: _LoaderPosition | None = None
        self._saved: dict[str, _Any] | None = None
        self._first = 0
        self._is_preempted = False

    def begin(self, engine: _Any) -> None:
        """Restores the run, before the data is read."""
        if engine.state.dataloader is None:
            raise _UnsupportedError(
                "a run without data has no batches to resume at", expected="engine.run(data, ...)", found="data=None"
            )
        self._position = _LoaderPosition(engine.state.dataloader)
        saved = self._saved = self._run.begin()
        self._first = engine.state.iteration
        self._is_preempted = False
        if saved is None:
            return
        self._restore(engine, saved)
        engine.state.iteration = self._first = saved["iteration"]
        if engine.state.epoch_length is None:  # the engine finds out at the end of the first epoch
            engine.state.epoch_length = saved.get("epoch_length")
        length = engine.state.epoch_length
        engine.state.epoch = saved["iteration"] // length if length else 0
        self._position.load(saved["loader"], saved["random"])
        if saved.get("ended", False) and not self._continue_ended:
            _warn(
                f"a handler ended this run after iteration {saved['iteration']}, so run() trains nothing: to continue, pass "
                "continue_ended=True to attach(), or start a run in another directory"
            )
            engine.terminate()

    def _restore(self, engine: _Any, saved: dict[str, _Any]) -> None:
        for name, state in saved["objects"].items():
            self._objects[name].load_state_dict(state)
        for name, value in saved["user"].items():
            setattr(engine.state, name, value)

    def before_batch(self, engine: _Any) -> None:
        """Saves if a save is due. Before the first batch, restores the parts that depend on no other part.

        Handlers of the start of an epoch have run before the save, and once more now: metrics begin anew in them. So the objects are
        restored again.
        """
        step = engine.state.iteration
        saved, self._saved = self._saved, None
        if saved is not None:
            assert self._position is not None
            self._restore(engine, saved)
            for name, gradients in saved["gradients"].items():
                _gradients.set_gradients(self._objects[name], gradients)
            _set_global_state(self._position.arrived() or saved["random"])
        if step <= self._first:
            return
        is_due, must_end = self._run.is_due(step), self._run.must_end(step)
        if self._is_last(engine):
            is_due |= self._run.is_due_after(step // engine.state.epoch_length)
        if is_due or must_end:
            self._save(engine)
        if must_end:
            self._is_preempted = True
            engine.terminate(skip_completed=True)

    def terminate(self, engine: _Any) -> None:
        """Saves the end of a run that was terminated, unless another event follows."""
        if engine.should_terminate == "skip_completed":
            self.end(engine)

    def end(self, engine: _Any) -> None:
        """Saves the end of the run."""
        if engine.state.iteration > self._first and not self._is_preempted:
            self._save(engine, ended=self._is_ended(engine))
        self.let_go(engine)

    def _is_ended(self, engine: _Any) -> bool:
        """Whether a handler has ended the run before its last iteration, which the engine itself does after ``max_iters``."""
        return bool(engine.should_terminate) and engine.state.iteration != getattr(engine.state, "max_iters", None)

    def fail(self, engine: _Any, error: BaseException) -> None:
        """Releases the loader and stops catching SIGTERM."""
        self.let_go(engine)
        raise error

    def let_go(self, engine: _Any) -> None:
        """Releases the loader and stops catching SIGTERM."""
        if self._position is not None:
            self._position.forget()
            self._position = None
        self._run.end()

    def _is_last(self, engine: _Any) -> bool:
        """Whether the last iteration was that of its epoch."""
        length = engine.state.epoch_length
        return bool(length) and engine.state.iteration % length == 0

    def _save(self, engine: _Any, *, ended: bool = False) -> None:
        metrics = dict(self._metrics()) if self._metrics is not None and self._is_last(engine) else None
        self._run.save(engine.state.iteration, lambda: self._state(engine, ended), metrics, again=ended)

    def _state(self, engine: _Any, ended: bool) -> dict[str, _Any]:
        assert self._position is not None
        modules = {name: each for name, each in self._objects.items() if hasattr(each, "named_parameters")}
        return {
            "objects": {name: each.state_dict() for name, each in self._objects.items()},
            "iteration": engine.state.iteration,
            "user": {name: getattr(engine.state, name) for name in engine.state_dict_user_keys},
            "gradients": {name: _gradients.gradients_of(each) for name, each in modules.items() if self._gradients},
            "random": _global_state(),
            "loader": self._position.state(),
            "ended": ended,
            "epoch_length": engine.state.epoch_length,
        }
