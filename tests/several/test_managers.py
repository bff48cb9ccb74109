"""Managers of several processes: metrics, pins, deletions, and the question whether to save."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.several.programs import FILES, JAX, Programs, run, same

STEPS = """
from milepost.retention import Best
weights = np.zeros(50_000)
checkpoint = Checkpoint(weights=weights)
together = CheckpointOptions(**options)
manager = CheckpointManager(checkpoint, directory + "/run", 1, keep=Best(1, by="loss", mode="min"), options=together)
for step, loss in [(10, 0.5), (20, 0.1), (30, 0.9)]:
    weights[:] = step
    attempt(f"save {step}", lambda: manager.save(step, metrics={"loss": loss if rank == 0 else float("nan")}, metadata={"rank": rank}))
results["kept"] = [manager.steps, manager.best_step(), manager.latest_step, manager.metrics(20), manager.metadata(20)]
attempt("pin", lambda: manager.pin(20))
for step in (40, 50):  # with the weights of step 30
    attempt(f"save {step}", lambda: manager.save(step, metrics={"loss": 0.05}))
results["pinned"] = [manager.steps, manager.pinned]
attempt("delete pinned", lambda: manager.delete(20))
attempt("unpin", lambda: manager.unpin(20))
attempt("delete", lambda: manager.delete(20))
attempt("delete again", lambda: manager.delete(20))
results["deleted"] = [manager.steps, manager.latest_step]
attempt("wrong metric", lambda: manager.save(60, metrics={"loss": "low"}))
attempt("restore", lambda: str(manager.restore(40)))
results["restored"] = float(weights[0])
attempt("different steps", lambda: manager.restore(40 if rank else 50))
"""

ASKING = """
import signal, time
checkpoint = Checkpoint(weights=np.zeros(200_000))
manager = CheckpointManager(
    checkpoint, directory + "/run", 3, every_seconds=0.05, on_sigterm=True, options=CheckpointOptions(enable_async=True, **options)
)
results["saved"] = []
with manager:
    for step in range(1, 10_000):
        time.sleep(0.003 * (rank + 1))
        if manager.should_save(step):
            manager.save(step, metrics={"loss": 1.0 / step})
            results["saved"].append(step)
        if manager.reached_preemption(step):
            results["ended"] = step
            break
        if step == 20:
            open(f"{directory}/ready-{rank}", "w").close()
results["steps"] = manager.steps
"""

OVERTAKEN = """
class Meanwhile(milepost.PythonState):
    def serialize(self):
        if rank == 0:
            Checkpoint(weights=np.ones(3)).save(directory + "/run/ckpt", CheckpointOptions(process_local=True))
        return ""
    def deserialize(self, value): ...
checkpoint = Checkpoint(weights=np.zeros(3), meanwhile=Meanwhile())
attempt("save", lambda: CheckpointManager(checkpoint, directory + "/run", 3, options=CheckpointOptions(**options)).save())
results["saved"] = milepost.load_variable(directory + "/run/ckpt-1", "weights").tolist()
"""


def test_all_see_what_process_0_has_saved_and_decided(tmp_path):
    """Its metrics and metadata count; pins and deletions are those of all."""
    results = run(STEPS, 2, tmp_path)
    for each in results:
        for name, text in each.items():
            each[name] = text.replace("process 0 of 2 failed: ", "") if isinstance(text, str) else text
    result = same(results)
    assert result["kept"] == [[20, 30], 20, 30, {"loss": 0.1}, {"rank": 0}]
    assert result["pinned"] == [[20, 40, 50], [20]]
    assert "pinned" in result["delete pinned"]
    assert result["deleted"] == [[40, 50], 50]
    assert result["delete again"].startswith("CheckpointNotFoundError")
    assert result["wrong metric"].startswith("UnsupportedError")
    assert result["restored"] == 30
    assert sorted(name for name in os.listdir(tmp_path / "run") if name.endswith(".index")) == [
        "ckpt-40.index",
        "ckpt-50.index",
    ]
    assert result["different steps"].startswith("CoordinationError")


@pytest.mark.parametrize("told", [0, 1])
@pytest.mark.parametrize("connect", [FILES, JAX])
def test_a_signal_to_one_process_ends_all_at_one_step(tmp_path, connect, told):
    """With a save of that step; until then the clock of process 0 says when to save, while saves run in the background."""
    if connect is JAX:
        pytest.importorskip("jax")
    programs = Programs(ASKING, 2, tmp_path, connect)
    until = time.monotonic() + 120
    while len(list(tmp_path.glob("ready-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    programs.signal(told, signal.SIGTERM)
    ended = programs.end()
    assert [each.code for each in ended] == [0, 0], [each.error[-2000:] for each in ended]
    result = same([each.results for each in ended])
    assert result["saved"][-1] == result["ended"] == result["steps"][-1]
    assert len(result["saved"]) > 2


def test_a_run_that_another_one_has_overtaken_is_refused_on_all(tmp_path):
    """Another program has begun the series after this save began."""
    result = run(OVERTAKEN, 2, tmp_path)
    for each in result:
        assert each["save"].startswith("CheckpointExistsError")
        assert "at the same time" in each["save"]
        assert each["saved"] == [1, 1, 1]
    assert sorted(os.listdir(tmp_path / "run")) == ["checkpoint", "ckpt-1.data-00000-of-00001", "ckpt-1.index"]


TOLERANT = """
import time, warnings
from tests.manager.disks import Disk
warnings.simplefilter("ignore")
disk = Disk()
weights = np.zeros(200_000)
checkpoint = Checkpoint(weights=weights)
together = CheckpointOptions(storage=disk, enable_async={enable_async}, **options)
first = CheckpointOptions(storage=disk, coordinator=coordinator, process_timeout=60)  # until all processes run
manager = CheckpointManager(
    checkpoint, directory + "/run", 1, options=together, on_failure=milepost.Tolerate(saves=3, hangs_after=0.5)
)
results["paths"], results["healthy"] = [], []

def save(step):
    weights[:] = step
    path = manager.save(step, options=first if step == 1 else None)
    until = time.monotonic() + 30
    while manager.is_saving and manager.health.state != "hanging" and time.monotonic() < until:
        time.sleep(0.01)
    results["paths"].append(path and path.rpartition("-")[2])
    results["healthy"].append(manager.health.consecutive)

save(1)
if rank == {bad}:
    disk.trouble = "{trouble}"
for step in (2, 3):
    save(step)
disk.recover()
until = time.monotonic() + 30
while manager.is_saving and time.monotonic() < until:
    time.sleep(0.01)
save(4)
manager.sync()
results["good"] = [manager.steps, manager.health.state, manager.health.last_good.step]
if rank == {bad}:
    disk.trouble = "full"
attempt("limit", lambda: [save(step) for step in range(5, 12)])
results["error"] = results.pop("limit").partition(":")[0]
results["paths"] = len(results["paths"])
"""


@pytest.mark.parametrize(
    ("trouble", "enable_async", "bad"),
    [("full", False, 1), ("full", True, 0), ("hangs", False, 0), ("hangs", False, 1), ("hangs", True, 1)],
)
def test_what_fails_or_hangs_on_one_process_is_tolerated_and_limited_on_all(tmp_path, trouble, enable_async, bad):
    """No process saves alone, and all end at the same save."""
    program = TOLERANT.format(trouble=trouble, enable_async=enable_async, bad=bad)
    ended = Programs(program, 2, tmp_path, timeout=4).end(120)
    assert all(each.results for each in ended), "\n=====\n".join(each.error[-4000:] for each in ended)
    for each in ended:
        assert each.results["good"] == [[4], "good", 4]
        assert each.results["error"] == "StorageError"
    same([[each.results["paths"], each.code] for each in ended])
    assert sorted(path.name for path in (tmp_path / "run").glob("*.index")) == ["ckpt-4.index"]


FINITE = """
import warnings
warnings.simplefilter("ignore")
alike, own = np.zeros(200_000), np.zeros(1000)
checkpoint = Checkpoint(alike=alike, own=own)
together = CheckpointOptions(enable_async={enable_async}, each_process=["own"], **options)
manager = CheckpointManager(
    checkpoint, directory + "/run", 1, options=together, nonfinite=milepost.KeepLastFinite(restore=True)
)
def save(step, value, own_value):
    alike[-1], own[:] = value, own_value
    manager.save(step)
    manager.sync()
nan = float("nan")
save(1, 1.0, 1.0)
save(2, nan, 1.0)
results["alike"] = [manager.steps, list(manager.nonfinite(2)), manager.last_finite_step]
save(3, 2.0, nan if rank == size - 1 else 1.0)
results["own"] = [manager.steps, [name.partition("-")[0] for name in manager.nonfinite(3)], manager.last_finite_step]
results["restored"] = [os.path.basename(manager.restore_or_initialize()), float(alike[-1]), float(own[0])]
"""


@pytest.mark.parametrize("enable_async", [False, True])
def test_what_one_process_holds_that_is_not_finite_marks_the_checkpoint_of_all(tmp_path, enable_async):
    """Wherever it is: in values of all processes, of which one writes each part, or in those of one process."""
    result = same(run(FINITE.format(enable_async=enable_async), 3, tmp_path))
    assert result["alike"] == [[1, 2], ["alike"], 1]
    assert result["own"] == [[1, 3], ["own/VARIABLE_VALUE"], 1]
    assert result["restored"] == ["ckpt-1", 1.0, 1.0]


SHARDED = """
import warnings, jax.numpy as jnp
warnings.simplefilter("ignore")
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), ("x",))
def spread(length, bad):
    whole = np.ones(length, np.float32)
    whole[-1] = float("nan") if bad else 1.0
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, PartitionSpec("x")), lambda index: whole[index])
together = CheckpointOptions(**options)
import milepost.jax
manager = milepost.jax.TreeManager(directory + "/run", 1, options=together, nonfinite="keep_last_finite")
for step, (small, large) in enumerate([(False, False), (True, False), (False, True)], 1):
    manager.save({"small": spread(8, small), "large": spread(1 << 18, large)}, step)
    results[str(step)] = [manager.steps, list(manager.nonfinite(step))]
"""


def test_pieces_of_arrays_of_jax_are_looked_at_where_they_are(tmp_path):
    """The bad element is on the last process, and not on process 0; small arrays are sent to process 0."""
    pytest.importorskip("jax")
    result = same(run(SHARDED, 2, tmp_path, JAX))
    assert result == {"1": [[1], []], "2": [[1, 2], ["small"]], "3": [[1, 3], ["large"]]}


HOOK = """
told = []
weights = np.zeros(200_000)
manager = CheckpointManager(
    Checkpoint(weights=weights), directory + "/run", 1, options=CheckpointOptions(**options), on_committed=told.append
)
manager.save(7, metrics={"loss": rank})
results["told"] = [[each.step, each.metrics, len(each.files), all(map(os.path.exists, each.files))] for each in told]
"""


def test_process_0_is_told_of_a_checkpoint_of_all(tmp_path):
    """With the files of all processes."""
    first, second = run(HOOK, 2, tmp_path)
    assert (first["told"], second["told"]) == ([[7, {"loss": 0}, 4, True]], [])
