"""`TreeManager`: steps, metrics, policies and several named items in one commit."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy

import milepost.jax  # noqa: E402
from milepost import (  # noqa: E402
    CheckpointManager,
    CheckpointNotFoundError,
    CheckpointOptions,
    CorruptCheckpointError,
    UnmatchedError,
    UnsupportedError,
)
from milepost.jax import TreeManager  # noqa: E402
from milepost.manager.by_step import ByStep  # noqa: E402
from milepost.retention import Best  # noqa: E402
from milepost.testing import FaultyStorage  # noqa: E402


def items(number: float) -> dict[str, Any]:
    rng = random.Random(number)
    state = {"w": jnp.full((2, 3), number), "layers": [{"b": jnp.full(3, number)} for _ in range(3)]}
    return {"state": state, "rng": rng, "config": {"lr": number, "name": f"run {number}"}}


@pytest.fixture(autouse=True)
def _no_warning() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", milepost.MilepostWarning)
        yield


def test_it_has_every_method_of_a_manager() -> None:
    """Those by step are shared, not written twice; a tree is saved and restored by methods of its own."""
    assert issubclass(TreeManager, ByStep)
    public = {name for name in dir(CheckpointManager) if not name.startswith("_")}
    lacking = public - {name for name in dir(TreeManager) if not name.startswith("_")}
    assert lacking == {"checkpoint", "checkpoint_interval", "restore_or_initialize", "status"}


def test_steps_metrics_and_policies(tmp_path: Path) -> None:
    """As of a manager of objects, with metrics that are arrays of JAX."""
    manager = TreeManager(tmp_path, max_to_keep=1, keep=Best(1, by="loss", mode="min"), every_steps=10)
    for step in range(1, 51):
        if manager.should_save(step):
            loss = jnp.abs(jnp.float32(step) - 20)
            manager.save({"w": jnp.full(2, step)}, step, metrics={"loss": loss}, metadata={"model": "small"})
    assert (manager.steps, manager.best_step(), manager.latest_step) == ([20, 50], 20, 50)
    assert (manager.metrics(50), manager.metadata(20)) == ({"loss": 30.0}, {"model": "small"})
    tree, status = manager.restore(manager.best_step(), {"w": jax.ShapeDtypeStruct((2,), "int32")})
    status.assert_consumed()
    assert tree["w"].tolist() == [20, 20]
    manager.pin(20)
    assert manager.dry_run(60, {"loss": 0.0}).deleted == [50]
    manager.delete(50)
    assert (manager.latest_step, manager.restore(None, {"w": jnp.zeros(2, int)})[0]["w"][0]) == (20, 20)
    with pytest.raises(CheckpointNotFoundError, match="20"):
        manager.restore(50, {"w": jnp.zeros(2, int)})
    with pytest.raises(CheckpointNotFoundError):
        TreeManager(tmp_path / "none").restore(None, {"w": jnp.zeros(2, int)})


def test_each_item_can_be_restored_alone(tmp_path: Path) -> None:
    """The others are not read: damage to them is not seen. All together are consumed."""
    manager = TreeManager(tmp_path)
    path = manager.save_items({**items(1.5), "big": jnp.ones(5000)}, 7)
    config, _ = manager.restore_items(7, {"config": {"lr": 0.0, "name": ""}})
    assert config == {"config": {"lr": 1.5, "name": "run 1.5"}}
    live = items(0.0)
    all_items, status = manager.restore(7, {**live, "big": jnp.zeros(5000)})
    status.assert_consumed()
    assert all_items["state"]["layers"][2]["b"].tolist() == [1.5] * 3
    assert live["rng"].random() == random.Random(1.5).random()
    data = Path(f"{path}.data-00000-of-00001")
    content = bytearray(data.read_bytes())
    at = content.index(b"\x00\x00\x80\x3f" * 5000)
    content[at + 2] = 0
    data.write_bytes(content)
    state, _ = TreeManager(tmp_path, options=CheckpointOptions()).restore_items(7, {"state": items(0.0)["state"]})
    assert state["state"]["w"].tolist() == [[1.5] * 3] * 2
    with pytest.raises(CorruptCheckpointError):
        manager.restore_items(7, {"big": jnp.zeros(5000)})


def test_an_item_must_be_whole(tmp_path: Path) -> None:
    """Layers that were saved and have no place are an error, unless the program says so; so are items that were not saved."""
    manager = TreeManager(tmp_path)
    manager.save_items(items(1.5), 7)
    shallow = {"state": {"w": jnp.zeros((2, 3)), "layers": [{"b": jnp.zeros(3)}]}}
    with pytest.raises(UnmatchedError, match="state/layers/1/b"):
        manager.restore_items(7, shallow)
    found, _ = manager.restore_items(7, shallow, partial=True)
    assert found["state"]["layers"][0]["b"].tolist() == [1.5] * 3
    deep = {"state": {**items(0.0)["state"], "more": jnp.zeros(1)}}
    for wrong in (deep, {"other": jnp.zeros(1)}):
        with pytest.raises(UnmatchedError):
            manager.restore_items(7, wrong, partial=True)
    nothing: list[Any] = [{}, [jnp.zeros(1)], {1: jnp.zeros(1)}]
    for each in nothing:
        with pytest.raises(UnsupportedError, match="items are a dict"):
            manager.save_items(each)


def test_items_are_of_one_commit() -> None:
    """After a crash at any moment all of them are of the same step, with its metrics."""
    storage = FaultyStorage()
    options = CheckpointOptions(storage=storage)
    manager = TreeManager("run", 2, options=options)
    for step in (1, 2):
        manager.save_items(items(float(step)), step, metrics={"loss": step})
    found = set()
    for point in storage.crash_points():
        for state in storage.crash_states(point, limit=6):
            again = TreeManager("run", 2, options=CheckpointOptions(storage=state))
            latest = again.latest_step
            found.add(latest)
            if latest is not None:
                tree, status = again.restore(latest, items(0.0))
                status.assert_consumed()
                assert (tree["state"]["w"] == latest).all()
                assert tree["config"] == {"lr": float(latest), "name": f"run {float(latest)}"}
                assert again.metrics(latest) == {"loss": latest}
    assert found == {None, 1, 2}


def test_incremental_saves_share_what_has_not_changed(tmp_path: Path) -> None:
    options = milepost.CheckpointOptions(incremental=True)
    manager = TreeManager(tmp_path, max_to_keep=2, options=options)
    base = jnp.arange(100_000.0)
    for step in range(1, 6):
        manager.save({"base": base, "adapter": jnp.full(100, step)}, step)
    found = {status.st_ino: status.st_size for path in tmp_path.glob("*.data-*") for status in [path.stat()]}
    assert sum(found.values()) < 1.1 * base.nbytes
    for step in (4, 5):
        tree, _ = manager.restore(step, {"base": jnp.zeros(100_000), "adapter": jnp.zeros(100, int)})
        assert tree["adapter"][0] == step
        assert bool((tree["base"] == base).all())


def test_a_step_and_a_tree_that_were_exchanged_are_told_apart(tmp_path):
    """Orbax has the step first in both calls."""
    manager = TreeManager(tmp_path)
    tree = {"w": jnp.zeros(2)}
    with pytest.raises(UnsupportedError, match=r"exchanged\n  expected: save\(tree, step\)"):
        manager.save(1, tree)
    with pytest.raises(UnsupportedError, match=r"exchanged\n  expected: restore\(step, tree\)"):
        manager.restore(tree, 1)
