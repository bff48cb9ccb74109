"""milepost's manager and TensorFlow's, step by step side by side, and taking turns in one directory."""

from __future__ import annotations

import inspect
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, MilepostWarning, Variable, latest_checkpoint
from milepost.retention import Best

tf: Any = pytest.importorskip("tensorflow")
needs_last_checkpoint_step = pytest.mark.skipif(
    "last_checkpoint_step" not in inspect.signature(tf.train.CheckpointManager).parameters,
    reason="this TensorFlow's manager does not take last_checkpoint_step yet",
)

OVERWRITE = CheckpointOptions(overwrite=True)

steps = st.lists(
    st.sampled_from(["save", "save", "save", "number", "restart", "restore"])
    | st.sampled_from([1.0, 1200.0, 3600.0, 9000.0, -5000.0]),
    min_size=1,
    max_size=14,
)


class Side:
    """One of the two libraries at work in a directory."""

    def __init__(self, directory: Path, keep: int | None, hours: float | None) -> None:
        self.directory, self.keep, self.hours = directory, keep, hours
        self.restart()

    def restart(self) -> None:
        self.checkpoint, self.manager = self.make()

    def make(self) -> tuple[Any, Any]:
        raise NotImplementedError

    def save(self, number: int | None) -> None:
        raise NotImplementedError

    def view(self) -> dict[str, Any]:
        """All that can be seen from outside."""
        state = self.directory / "checkpoint"
        latest = self.manager.latest_checkpoint
        return {
            "indexes": sorted(path.name for path in self.directory.glob("*.index")),
            "checkpoints": [os.path.basename(path) for path in self.manager.checkpoints],
            "latest": latest and os.path.basename(latest),
            "counter": int(self.checkpoint.save_counter),
            "state": state.read_text() if state.exists() else None,
        }


class Milepost(Side):
    def make(self) -> tuple[Any, Any]:
        checkpoint = Checkpoint(v=Variable(np.float32(1)))
        return checkpoint, CheckpointManager(checkpoint, str(self.directory), self.keep, self.hours)

    def save(self, number: int | None) -> None:
        self.manager.save(checkpoint_number=number, options=OVERWRITE)


class TensorFlow(Side):
    def make(self) -> tuple[Any, Any]:
        checkpoint = tf.train.Checkpoint(v=tf.Variable(np.float32(1)))
        return checkpoint, tf.train.CheckpointManager(checkpoint, str(self.directory), self.keep, self.hours)

    def save(self, number: int | None) -> None:
        self.manager.save(checkpoint_number=number)


class TestSideBySide:
    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(steps=steps, keep=st.sampled_from([None, 1, 2, 3]), hours=st.sampled_from([None, 0.5, 1, 2]))
    def test_same_history_same_result(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[Any], keep: int | None, hours: float | None
    ) -> None:
        """Files, lists, latest, counter and the very text of the state file agree after every step."""
        now = 1_700_000_000.0
        patch = pytest.MonkeyPatch()
        patch.setattr(time, "time", lambda: now)
        try:
            root = tmp_path_factory.mktemp("runs")
            sides: list[Side] = []
            for name, kind in (("tf", TensorFlow), ("mp", Milepost)):
                (root / name).mkdir()
                sides.append(kind(root / name, keep, hours))
            latest = now
            for step in steps:
                if isinstance(step, float):
                    now += step
                    latest = max(latest, now)
                    continue
                if step in ("restart", "restore") and now < latest:
                    return  # TensorFlow gives checkpoints of the future the present time; milepost keeps theirs, and so what EveryHours keeps
                for side in sides:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", MilepostWarning)
                        if step in ("restart", "restore"):
                            side.restart()
                        if step == "restore":
                            side.manager.restore_or_initialize()
                        if step in ("save", "number"):
                            side.save(5 if step == "number" else None)
                assert sides[0].view() == sides[1].view()
        finally:
            patch.undo()

    @needs_last_checkpoint_step
    def test_same_arguments(self) -> None:
        """In the same order, with the same defaults; what milepost adds is by keyword only."""
        for name in ("__init__", "save", "restore_or_initialize", "sync"):
            theirs = inspect.signature(getattr(tf.train.CheckpointManager, name)).parameters
            ours = inspect.signature(getattr(CheckpointManager, name)).parameters
            common = list(ours.values())[: len(theirs)]
            assert [(each.name, each.default) for each in common] == [
                (each.name, each.default) for each in theirs.values()
            ]
            assert all(each.kind is each.KEYWORD_ONLY for each in list(ours.values())[len(theirs) :])

    @needs_last_checkpoint_step
    @pytest.mark.parametrize("last", [None, 0, 3])
    def test_same_intervals(self, tmp_path: Path, last: int | None) -> None:
        """Both save at the same steps."""
        done = []
        for library, make in ((tf.train, tf.Variable), (None, Variable)):
            step = make(np.int64(0))
            manager_type = library.CheckpointManager if library else CheckpointManager
            checkpoint = (library.Checkpoint if library else Checkpoint)(step=step)
            manager = manager_type(
                checkpoint,
                str(tmp_path / str(library is None)),
                max_to_keep=None,
                step_counter=step,
                checkpoint_interval=4,
                last_checkpoint_step=last,
            )
            saves: list[bool | None] = []
            for number in (0, 1, 3, 4, 5, 5, 9, 10, 20):
                step.assign(number)
                saves.append(manager.save(check_interval=number != 10) is not None)
                saves.append(manager.save(check_interval=False) is not None if number == 5 else None)
            done.append(saves)
        assert done[0] == done[1]


class TestTakingTurns:
    @pytest.mark.parametrize("relative", [False, True])
    def test_each_goes_on_where_the_other_stopped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
    ) -> None:
        """Values, numbers and lists carry over, and each deletes the other's files in their turn."""
        monkeypatch.chdir(tmp_path)
        directory = "run" if relative else str(tmp_path / "run")
        number = 0
        for turn in range(4):
            checkpoint: Any
            manager: Any
            if turn % 2 == 0:
                checkpoint = tf.train.Checkpoint(v=tf.Variable(0.0))
                manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=4)
            else:
                checkpoint = Checkpoint(v=Variable(np.float32(0)))
                manager = CheckpointManager(checkpoint, directory, max_to_keep=4)
            assert manager.restore_or_initialize() == (f"{directory}/ckpt-{number}" if turn else None)
            assert float(checkpoint.v) == number
            assert int(checkpoint.save_counter) == number
            for _ in range(3):
                number += 1
                checkpoint.v.assign(float(number))
                assert manager.save() == f"{directory}/ckpt-{number}"
            kept = [f"ckpt-{each}" for each in range(max(1, number - 3), number + 1)]
            assert [os.path.basename(path) for path in manager.checkpoints] == kept
            files = [f"{each}.{ending}" for each in kept for ending in ("data-00000-of-00001", "index")]
            assert sorted(os.listdir(directory)) == sorted(["checkpoint", *files])
            assert tf.train.latest_checkpoint(directory) == latest_checkpoint(directory) == f"{directory}/ckpt-{number}"

    def test_a_series_that_only_checkpoint_saved(self, tmp_path: Path) -> None:
        """TensorFlow's `Checkpoint.save` records no times: milepost manages its last checkpoint all the same."""
        checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
        for _ in range(2):
            checkpoint.save(str(tmp_path / "ckpt"))
        manager = CheckpointManager(Checkpoint(v=Variable(np.float32(0))), tmp_path, 1)
        assert manager.checkpoints == [f"{tmp_path}/ckpt-2"]
        assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-2"
        manager.save()
        assert sorted(path.name for path in tmp_path.glob("*.index")) == ["ckpt-1.index", "ckpt-3.index"]
        theirs = tf.train.CheckpointManager(checkpoint, str(tmp_path), 1)
        assert theirs.restore_or_initialize() == f"{tmp_path}/ckpt-3"
        assert float(checkpoint.v) == 1


class TestWhatTensorFlowDoesNotKnow:
    def test_metrics_policies_and_pins_do_not_hide_a_checkpoint(self, tmp_path: Path) -> None:
        """TensorFlow reads the state file and restores every checkpoint whole; its reader has the metadata as text."""
        checkpoint: Any = Checkpoint(v=Variable(np.float32(0)))
        keep = Best(1, by="loss", mode="min")
        manager = CheckpointManager(checkpoint, str(tmp_path), 2, keep=keep)
        for step, loss in [(1, 0.1), (2, 0.5), (3, 0.4), (4, 0.3)]:
            checkpoint.v.assign(np.float32(step))
            manager.save(step, metrics={"loss": loss}, metadata={"step": step})
        manager.pin(3)
        checkpoint.v.assign(np.float32(5))
        manager.save(5)
        assert manager.steps == [1, 3, 4, 5]
        state = tf.train.get_checkpoint_state(str(tmp_path))
        assert list(state.all_model_checkpoint_paths) == [f"{tmp_path}/ckpt-{step}" for step in manager.steps]
        assert tf.train.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/ckpt-5"
        for step in manager.steps:
            theirs = tf.train.Checkpoint(v=tf.Variable(0.0))
            theirs.restore(f"{tmp_path}/ckpt-{step}").assert_consumed()
            assert float(theirs.v) == step
        text = tf.train.load_checkpoint(f"{tmp_path}/ckpt-1").get_tensor("_MILEPOST_METADATA")
        assert json.loads(text) == {"metrics": {"loss": 0.1}, "metadata": {"step": 1}}
        assert [name for name, _ in tf.train.list_variables(f"{tmp_path}/ckpt-1")] == [
            "_CHECKPOINTABLE_OBJECT_GRAPH",
            "_MILEPOST_METADATA",
            "save_counter/.ATTRIBUTES/VARIABLE_VALUE",
            "v/.ATTRIBUTES/VARIABLE_VALUE",
        ]

    def test_tensorflow_goes_on_and_milepost_after_it(self, tmp_path: Path) -> None:
        """What TensorFlow saves has no metrics, and is never the best; what it deletes is gone."""
        checkpoint = Checkpoint(v=Variable(np.float32(0)))
        manager = CheckpointManager(checkpoint, str(tmp_path), 1, keep=Best(1, by="loss", mode="min"))
        for step, loss in [(1, 0.1), (2, 0.5), (3, 0.4)]:
            manager.save(step, metrics={"loss": loss})
        theirs = tf.train.Checkpoint(v=tf.Variable(7.0))
        other = tf.train.CheckpointManager(theirs, str(tmp_path), max_to_keep=2)
        theirs.restore(other.latest_checkpoint)
        other.save()
        again = CheckpointManager(checkpoint, str(tmp_path), 1, keep=Best(1, by="loss", mode="min"))
        assert (again.steps, again.best_step(), again.metrics(4)) == ([3, 4], 3, None)
        again.restore()
        again.save(5, metrics={"loss": float("nan")})
        assert again.steps == [3, 5]
