"""The tests of Orbax for its manager, with a `milepost.jax.TreeManager` in its place."""

from __future__ import annotations

import datetime
import functools
import operator
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from unittest import mock

from tests.peers.library_texts import accept_own_texts
from tests.peers.orbax_targets import target_of
from tests.peers.suite import Suite

SUITE = Suite(
    title="Orbax, manager",
    packages=("orbax-checkpoint", "jax"),
    copied={"checkpoint/orbax/checkpoint/checkpoint_manager_test.py": "checkpoint_manager_test.py"},
    files=("checkpoint_manager_test.py",),
    plugins=("tests.peers.orbax_one_process",),
    replaced="A `milepost.jax.TreeManager` saves, restores, lists and deletes, with the options of the test as options of milepost. What Orbax "
    "has options for and milepost leaves to the program is in the plugin: further steps at which to save, and that no step is saved twice. Every "
    "manager gets `overwrite=True`, since tests make several for one directory. JSON is "
    "saved as metadata. A restore without a target takes the structure from `milepost.load`. The tests run in one process, on eight devices of the "
    "CPU, with the installed Orbax around them.",
    excluded={
        "*::test_async_error_*": "The error is raised in Orbax' own handler of files.",
        "*::test_async_finalize": "It looks for Orbax' files.",
        "*::test_file_format*": "It looks for Orbax' files.",
        "*::test_save_restore_gcs*": "It looks for Orbax' files in an object store.",
        "*::test_save_gcs_*": "It looks for Orbax' files in an object store.",
        "*::test_save_preempted_gcs*": "It looks for Orbax' files in an object store.",
        "*::test_save_preempted_mock_*": "It replaces how Orbax commits its files.",
        "*::test_metadata_*_preemption_*": "It replaces how Orbax commits its files.",
        "*::test_configure_atomicity": "It chooses how Orbax commits its files.",
        "*::test_checkpoint_args_mismatch_item_handlers": "It is about handlers and arguments of Orbax.",
        "*::test_default_init_default_item*": "It is about handlers and arguments of Orbax.",
        "*::test_default_init_multi_item0": "It is about handlers and arguments of Orbax.",
        "*::test_default_init_multi_item1": "It is about handlers and arguments of Orbax.",
        "*::test_incorrect_*_usage": "It is about handlers and arguments of Orbax.",
        "*::test_item_names_with_single_item_handler": "It is about handlers and arguments of Orbax.",
        "*::test_legacy_api_timeout": "It is about handlers and arguments of Orbax.",
        "*::test_legacy_handler_default_item": "It uses private names of Orbax' manager.",
        "*::test_new_and_legacy_api_confusion": "It is about handlers and arguments of Orbax.",
        "*::test_save_restore_invalid_item": "It is about handlers and arguments of Orbax.",
        "*::test_default_item_metadata_with_new_checkpoint_manager": "It uses private names of Orbax' manager.",
        "*::test_lightweight_intialize_*": "It uses private names of Orbax' manager.",
        "*::test_save_default_item*": "It uses private names of Orbax' manager.",
        "*::test_save_restore2": "It uses private names of Orbax' manager.",
        "*::test_save_restore_default_item_legacy_init*": "It uses private names of Orbax' manager.",
        "*::test_async_continuous_checkpointing": "It replaces a private function of Orbax.",
        "*::test_slow_save_logs_warning": "It is about what Orbax logs.",
        "*::test_save_and_restore_*_logger": "It is about what Orbax logs.",
        "*::test_init_telemetry_*": "It is about what Orbax logs.",
        "*::test_item_metadata_*": "It is about classes in which Orbax describes saved values.",
        "*::test_metadata": "milepost has metadata of checkpoints, and none of a series.",
        "*::test_empty_metadata": "milepost has metadata of checkpoints, and none of a series.",
        "*::test_metadata_save_skipped_*": "milepost has metadata of checkpoints, and none of a series.",
        "*::test_custom_metadata_with_*": "milepost has metadata of checkpoints, and none of a series.",
        "*root_metadata*": "milepost has metadata of checkpoints, and none of a series.",
        "*::test_save_step_metadata": "It reads Orbax' file of metadata.",
        "*::test_directory_creation": "The first save of milepost makes the directory.",
        "*::test_max_to_keep_zero*": "milepost always keeps the newest checkpoint.",
        "*::test_save_best_m*": "milepost always keeps the newest checkpoint.",
        "*::test_removes_old_saves_time_interval0": "It uses private names of Orbax' manager.",
        "*::test_removes_old_saves_time_interval1": "It uses private names of Orbax' manager.",
        "*::test_legacy_handler_multiple_items": "It restores without a target, and milepost saves no layout of devices.",
        "*::test_save_restore_legacy_init*": "It restores without a target, and milepost saves no layout of devices.",
        "*::test_save_restore_local_fs*": "It restores without a target, and milepost saves no layout of devices.",
        "*::test_partial_restore_with_placeholder": "A leaf `...` is Orbax' own. For milepost, the tree lacks this leaf.",
        "*::test_save_on_preemption": "milepost itself catches SIGTERM, and does not ask JAX.",
        "*::test_should_save_returns_false_when_read_only": "milepost has no such option.",
        "*::test_save_returns_false_when_read_only": "milepost has no such option.",
        "*::test_delete_skipped_when_read_only": "milepost has no such option.",
        "*::test_should_save_with_option_*": "A condition of the program decides, and milepost is not asked.",
        "*::test_single_host_load_and_broadcast": "milepost has no such option, and names its files as TensorFlow does.",
    },
)
_DEFAULT = "default"
_JSON = "json"
"""Where the metadata of a checkpoint has what tests save as JSON."""


def pytest_configure(config: Any) -> None:
    """Puts a manager that uses milepost's in the place of Orbax'."""
    from orbax.checkpoint import checkpoint_manager

    accept_own_texts()
    checkpoint_manager.CheckpointManager = Manager


@dataclass
class _Step:
    """What policies of Orbax ask of a step."""

    step: int
    time: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(tz=datetime.UTC))
    metrics: Any = None


class Manager:
    """Orbax' names for what a `milepost.jax.TreeManager` does.

    What Orbax has options for, and milepost leaves to the program, is here: further steps to save at, and no second save of a step.
    """

    def __init__(
        self,
        directory: Any,
        checkpointers: Any = None,
        options: Any = None,
        metadata: Any = None,
        item_names: Any = None,
        item_handlers: Any = None,
        logger: Any = None,
        handler_registry: Any = None,
    ) -> None:
        from orbax.checkpoint import checkpoint_manager

        import milepost.jax

        self.directory = directory
        self._options = options or checkpoint_manager.CheckpointManagerOptions()
        self._times: dict[int, datetime.datetime] = {}
        self._legacy_names = list(checkpointers) if isinstance(checkpointers, Mapping) else [_DEFAULT]
        max_to_keep, keep = _retention(self._options)
        interval = self._options.save_interval_steps
        self._manager = milepost.jax.TreeManager(
            os.fspath(directory),
            max_to_keep,
            keep=keep,
            checkpoint_name=self._options.step_prefix or "ckpt",
            every_steps=interval if interval > 0 else None,
            options=milepost.CheckpointOptions(enable_async=self._options.enable_async_checkpointing, overwrite=True),
        )

    def save(
        self,
        step: int,
        items: Any = None,
        save_kwargs: Any = None,
        metrics: Any = None,
        force: bool = False,
        args: Any = None,
        custom_metadata: Any = None,
    ) -> bool:
        if not force and not self.should_save(step):
            return False
        self._manager.sync()
        if step in self._manager.steps:
            from orbax.checkpoint import checkpoint_manager

            raise checkpoint_manager.StepAlreadyExistsError(step)
        trees, json = self._parts(args if args is not None else items)
        self._times[step] = datetime.datetime.now(tz=datetime.UTC)
        with _clock_of_the_test() as is_set:
            self._manager.save_items(trees, step, metrics=metrics, metadata={_JSON: json, "custom": custom_metadata})
            if is_set:
                self._manager.sync()
        return True

    def _parts(self, given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The trees and the JSON of a save, by name."""
        from orbax.checkpoint import args

        if isinstance(given, args.Composite):
            named = dict(given.items())
        elif isinstance(given, args.CheckpointArgs) or self._legacy_names == [_DEFAULT]:
            named = {_DEFAULT: given}
        else:
            named = dict(given)
        json = {name: each.item for name, each in named.items() if isinstance(each, args.JsonSave)}
        trees = {
            name: each.item if isinstance(each, args.CheckpointArgs) else each
            for name, each in named.items()
            if name not in json
        }
        return trees or {_JSON: 0}, json

    def restore(
        self, step: int | None, items: Any = None, restore_kwargs: Any = None, directory: Any = None, args: Any = None
    ) -> Any:
        from orbax.checkpoint import args as args_lib

        import milepost

        if directory is not None:
            with Manager(directory) as other:
                return other.restore(step, items, restore_kwargs, args=args)
        step = self.latest_step() if step is None else step
        assert step is not None
        path = os.fspath(self.directory / f"{self._options.step_prefix or 'ckpt'}-{step}")
        self._manager.sync()
        saved = milepost.load(path)
        saved.pop("save_counter", None)
        json = self._manager.metadata(step)[_JSON]
        saved = {**{name: each for name, each in saved.items() if name != _JSON}, **json}
        if isinstance(args, args_lib.Composite):
            wanted = dict(args.items())
        elif _DEFAULT in saved:
            wanted = {_DEFAULT: args}
        else:
            wanted = {**dict.fromkeys(saved), **(restore_kwargs or {})}
        if missing := wanted.keys() - saved.keys():
            raise FileNotFoundError(missing)
        restored = {name: json[name] for name in wanted if name in json}
        targets = {
            name: target_of(saved[name], getattr(said, "item", None), _restore_args(said))
            for name, said in wanted.items()
            if name not in json
        }
        partial = any(getattr(said, "partial_restore", False) for said in wanted.values())
        if targets:
            try:
                restored |= self._manager.restore_items(step, targets, partial=partial)[0]
            except milepost.UnmatchedError as error:
                raise ValueError(str(error)) from error
        return restored[_DEFAULT] if [*restored] == [_DEFAULT] else args_lib.Composite(**restored)

    def should_save(self, step: int) -> bool:
        options = self._options
        if options.read_only:
            return False
        if options.save_decision_policy is not None:
            return self._decided(step)
        latest = max(self._with_begun(), default=None)
        if options.should_save_fn is not None:
            return bool(options.should_save_fn(step, latest))
        if latest is None or (options.save_on_steps is not None and step in options.save_on_steps):
            return True
        return self._manager.should_save(step) or self.reached_preemption(step)

    def _decided(self, step: int) -> bool:
        """What a policy of Orbax says."""
        from orbax.checkpoint._src.checkpoint_managers import save_decision_policy
        from orbax.checkpoint.options import MultiprocessingOptions

        context = save_decision_policy.DecisionContext(
            is_saving_in_progress=self._manager.is_saving,
            reached_preemption=self.reached_preemption(step),
            multiprocessing_options=MultiprocessingOptions(),
        )
        saved = [_Step(each, self._times[each]) for each in self._with_begun()]
        return bool(self._options.save_decision_policy.should_save(_Step(step), saved, context=context))

    def _with_begun(self) -> list[int]:
        """All steps, and the one whose save is in progress."""
        return sorted({*self._manager.steps, *([*self._times][-1:] if self._manager.is_saving else [])})

    def all_steps(self, read: bool = False) -> list[int]:
        return self._with_begun()

    def latest_step(self) -> int | None:
        return self._manager.latest_step

    def best_step(self) -> int | None:
        return self._manager.best_step()

    def metrics(self, step: int) -> Any:
        return self._manager.metrics(step)

    def delete(self, step: int) -> None:
        if not self._options.read_only:
            self._manager.sync()
            self._manager.delete(step)

    def reload(self) -> None:
        self._manager.reload()

    def reached_preemption(self, step: int) -> bool:
        return self._manager.reached_preemption(step)

    def is_saving_in_progress(self) -> bool:
        return self._manager.is_saving

    def wait_until_finished(self) -> None:
        self._manager.sync()

    def check_for_errors(self) -> None:
        self._manager.sync()

    def close(self) -> None:
        self._manager.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._manager.__exit__(kind, error, trace)


def _restore_args(said: Any) -> Any:
    """What a test says of where the leaves are to be."""
    return said.get("restore_args") if isinstance(said, dict) else getattr(said, "restore_args", None)


def _retention(options: Any) -> tuple[int | None, Any]:
    """The options of milepost for which checkpoints to keep."""
    from milepost import retention

    policies: list[Any] = []
    max_to_keep = options.max_to_keep
    if options.best_fn is not None and max_to_keep is not None:
        policies.append(retention.Best(max_to_keep, by=options.best_fn, mode=options.best_mode))
        if options.keep_checkpoints_without_metrics:
            policies.append(retention.Unmeasured(options.best_fn))
        max_to_keep = None
    if options.keep_period is not None:
        policies.append(retention.EverySteps(options.keep_period))
    if options.keep_time_interval is not None:
        policies.append(retention.EveryHours(options.keep_time_interval.total_seconds() / 3600))
    policies += _policies(options.preservation_policy)
    return max_to_keep, functools.reduce(operator.or_, policies) if policies else None


def _policies(policy: Any) -> list[Any]:
    """Policies of Orbax as those of milepost."""
    from milepost import retention

    kind = type(policy).__name__
    if kind == "AnyPreservationPolicy":
        return [each for part in policy.policies for each in _policies(part)]
    if kind == "BestN":
        return [retention.Best(policy.n, by=policy.get_metric_fn, mode="min" if policy.reverse else "max")]
    if kind == "EveryNSteps":
        return [retention.EverySteps(policy.interval_steps)]
    if kind == "CustomSteps":
        return [retention.Steps(sorted(policy._steps_set))]
    if kind == "LatestN" and policy.n is not None:
        return [retention.Newest(policy.n)]
    return []


@contextmanager
def _clock_of_the_test() -> Iterator[bool]:
    """Tests replace `datetime.datetime`. milepost asks `time.time`, which then says the same. Whether it does."""
    now = datetime.datetime.now(tz=datetime.UTC)
    if not isinstance(datetime.datetime, mock.NonCallableMock):
        yield False
        return
    with mock.patch("time.time", return_value=now.timestamp()):
        yield True
