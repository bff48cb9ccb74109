"""Several processes save together and restore together: real processes, connected by files."""

from __future__ import annotations

import os

import numpy as np
import pytest

import milepost
from tests.several.programs import run, same

SAVING = """
import random, tempfile
random.seed(rank)
weights = np.arange(60_000.0).reshape(300, 200)
state = dict(
    weights=weights, large=np.ones((1000, 3000)), step=Variable(7), epoch=3, words={"a": "text", "b": [1, 2.5, None]},
    generator=np.random.default_rng(rank), random=milepost.RandomState(),
)
checkpoint = Checkpoint(**state)
results["written"] = attempt("write", lambda: checkpoint.write(f"{directory}/one/w", CheckpointOptions(**options)))
manager = CheckpointManager(checkpoint, f"{directory}/two", max_to_keep=2, options=CheckpointOptions(**options))
results["paths"] = [attempt(f"save {number}", manager.save) for number in range(3)]
results["checkpoints"] = manager.checkpoints
results["latest"] = manager.latest_checkpoint
later = CheckpointOptions(enable_async=True, **options)
attempt("async", lambda: manager.save(options=later))
weights += 1
attempt("sync", manager.sync)
results["after async"] = manager.checkpoints
results["drawn"] = [random.random(), checkpoint.generator.random()]
attempt("weights", lambda: milepost.Checkpoint(milepost.Module()).write(f"{directory}/three/w", CheckpointOptions(**options)))
checkpoint.step.assign(rank)
attempt("different value", lambda: checkpoint.write(f"{directory}/one/w", CheckpointOptions(**options)))
attempt("first", lambda: checkpoint.write(f"{directory}/one/first", CheckpointOptions(first_process=["step"], **options)))
attempt("each", lambda: checkpoint.write(f"{directory}/one/each", CheckpointOptions(each_process=["step"], **options)))
checkpoint.step.assign(7)
checkpoint.pair = [Variable(rank), Variable(rank)]
attempt("different values", lambda: checkpoint.write(f"{directory}/one/w", CheckpointOptions(**options)))
del checkpoint.pair
plain = Checkpoint(weights=weights)
own = CheckpointOptions(data_alignment=1 if rank == 1 else 64, **options)
attempt("different options", lambda: plain.write(f"{directory}/one/w", own))
if rank == 1:
    checkpoint.more = Variable(1.0)
attempt("different objects", lambda: checkpoint.write(f"{directory}/one/w", CheckpointOptions(**options)))
if rank == 1:
    del checkpoint.more
    checkpoint.weights = weights[:10].copy()
attempt("different shapes", lambda: checkpoint.write(f"{directory}/one/w", CheckpointOptions(**options)))
checkpoint.weights = weights
attempt("different paths", lambda: checkpoint.write(f"{directory}/one/{rank}", CheckpointOptions(**options)))
attempt("own path", lambda: checkpoint.write(f"{directory}/own/{rank}", CheckpointOptions(process_local=True, **options)))
if rank == 2:
    checkpoint.bad = [object()]
    checkpoint.words["c"] = np.array([object()])
attempt("cannot be saved", lambda: checkpoint.write(f"{directory}/one/w", CheckpointOptions(**options)))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What three processes have saved: the directory, and the results of each."""
    directory = tmp_path_factory.mktemp("saved")
    return directory, run(SAVING, 3, directory)


def test_all_return_the_same_path(saved):
    directory, results = saved
    assert same([each["written"] for each in results]) == f"{directory}/one/w"
    assert same([each["paths"] for each in results]) == [f"{directory}/two/ckpt-{number}" for number in (1, 2, 3)]


def test_one_process_reads_whole_values_without_any_framework(saved):
    directory, _ = saved
    reader = milepost.load_checkpoint(directory / "one" / "w")
    weights = reader.get_tensor("weights/.ATTRIBUTES/VARIABLE_VALUE")
    assert np.array_equal(weights, np.arange(60_000.0).reshape(300, 200))
    assert reader.get_tensor("large/.ATTRIBUTES/VARIABLE_VALUE").sum() == 3_000_000


def test_what_all_hold_alike_is_written_once_and_by_all_of_them(saved):
    directory, _ = saved
    sizes = [path.stat().st_size for path in sorted((directory / "one").glob("w.data-*"))]
    whole = 8 * (60_000 + 3_000_000)
    assert whole < sum(sizes) < whole + 200_000
    assert max(sizes) < whole / 3 * 1.1


def test_tensorflow_reads_what_several_processes_have_saved(saved):
    tensorflow = pytest.importorskip("tensorflow")
    reader = tensorflow.train.load_checkpoint(f"{saved[0]}/one/w")
    assert np.array_equal(reader.get_tensor("large/.ATTRIBUTES/VARIABLE_VALUE"), np.ones((1000, 3000)))
    assert len(reader.get_variable_to_shape_map()) == len(milepost.list_variables(f"{saved[0]}/one/w"))


def test_all_know_the_same_checkpoints(saved):
    directory, results = saved
    assert same([each["checkpoints"] for each in results]) == [f"{directory}/two/ckpt-{number}" for number in (2, 3)]
    assert same([each["latest"] for each in results]) == f"{directory}/two/ckpt-3"


def test_an_asynchronous_save_is_of_the_values_at_the_call(saved):
    directory, results = saved
    assert same([each["after async"] for each in results])[-1] == f"{directory}/two/ckpt-4"
    weights = milepost.load_variable(f"{directory}/two/ckpt-4", "weights")
    assert np.array_equal(weights, np.arange(60_000.0).reshape(300, 200))


def test_a_value_that_differs_is_refused_with_path_and_process(saved):
    for result in saved[1]:
        error = result["different value"]
        assert error.startswith("CoordinationError: processes 1, 2 of 3 and process 0 hold different values"), error
        assert "step/.ATTRIBUTES/VARIABLE_VALUE" in error
        assert "first_process=['step']" in error


def test_the_remedy_for_several_values_that_differ_names_all_of_them(saved):
    for result in saved[1]:
        assert "first_process=['pair/0', 'pair/1']" in result["different values"]


def test_different_options_are_refused_with_what_to_do(saved):
    for result in saved[1]:
        assert "pass all of them the same CheckpointOptions" in result["different options"]


def test_a_refused_save_leaves_the_checkpoint_that_was_there(saved):
    assert milepost.load_variable(f"{saved[0]}/one/w", "step") == 7


def test_the_value_of_the_first_process_is_saved_where_the_program_says_so(saved):
    assert milepost.load_variable(f"{saved[0]}/one/first", "step") == 0


def test_each_process_saves_its_own_where_the_program_says_so(saved):
    reader = milepost.load_checkpoint(f"{saved[0]}/one/each")
    values = [reader.get_tensor(f"step/.ATTRIBUTES/VARIABLE_VALUE-own-of-process-{rank}-of-3") for rank in range(3)]
    assert values == [0, 1, 2]


def test_different_objects_are_refused_with_path_and_process(saved):
    error = same([each["different objects"] for each in saved[1]])
    assert "hold different objects" in error
    assert "more on process 1 only" in error


def test_different_shapes_are_refused_with_path_and_process(saved):
    error = same([each["different shapes"] for each in saved[1]])
    assert "weights/.ATTRIBUTES/VARIABLE_VALUE" in error
    assert "float64[10,200], on process 1" in error


def test_different_paths_are_refused(saved):
    error = same([each["different paths"] for each in saved[1]])
    assert error.startswith("CoordinationError: the processes do different things")


def test_a_process_saves_alone_where_the_program_says_so(saved):
    directory, results = saved
    assert [each["own path"] for each in results] == [f"{directory}/own/{rank}" for rank in range(3)]


def test_what_one_process_cannot_save_fails_on_all_with_the_same_class(saved):
    errors = [each["cannot be saved"] for each in saved[1]]
    kind = same([error.partition(":")[0] for error in errors])
    assert kind == "UntrackableError"
    assert all(error.startswith(f"{kind}: process 2 of 3 failed: ") for error in errors[:2])


RESTORING = """
import random
checkpoint = Checkpoint(
    weights=np.zeros((300, 200)), large=np.zeros((1000, 3000)), step=Variable(0), epoch=0, words={},
    generator=np.random.default_rng(99), random=milepost.RandomState(),
)
manager = CheckpointManager(checkpoint, f"{directory}/two", max_to_keep=2, options=CheckpointOptions(**options))
results["path"] = attempt("restore", manager.restore_or_initialize)
attempt("assert", lambda: bool(manager.status.assert_consumed()))
results["sums"] = [checkpoint.weights.sum(), checkpoint.large.sum(), int(checkpoint.step), checkpoint.epoch]
results["words"] = dict(checkpoint.words)
results["drawn"] = [random.random(), checkpoint.generator.random()]
fresh = Checkpoint(step=Variable(0))
attempt("own", lambda: str(fresh.read(f"{directory}/one/each", CheckpointOptions(**options))))
results["own step"] = int(fresh.step)
if rank == size - 1:
    checkpoint.weights = np.zeros(3)
before = int(checkpoint.step.assign(50))
attempt("does not fit", lambda: str(checkpoint.read(f"{directory}/one/w", CheckpointOptions(**options))))
results["step after"] = int(checkpoint.step)
attempt("no such file", lambda: str(checkpoint.read(f"{directory}/one/none", CheckpointOptions(**options))))
attempt("alone", lambda: rank != 1 or str(fresh.read(f"{directory}/one/first", CheckpointOptions(process_local=True))) != "")
"""


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def restored(request, saved):
    """What so many processes have restored: their number, the results of each, and those of the processes that saved."""
    directory, before = saved
    return request.param, run(RESTORING, request.param, directory), before, directory


def test_any_number_of_processes_restores_the_same_checkpoint(restored):
    _, results, _, directory = restored
    assert same([each["path"] for each in results]) == f"{directory}/two/ckpt-4"
    assert same([each["sums"] for each in results]) == [59_999 * 30_000.0, 3_000_000.0, 7, 3]
    assert same([each["words"] for each in results]) == {"a": "text", "b": [1, 2.5, None]}


def test_no_value_is_left_over_on_any_process(restored):
    """A fourth process, which has no saved random state, warns of that. An assertion that fails on it alone would end it alone."""
    _, results, _, _ = restored
    assert all(each["assert"] is True for each in results)


def test_each_process_draws_what_it_would_have_drawn(restored):
    size, results, before, _ = restored
    for rank in range(min(size, 3)):
        assert results[rank]["drawn"] == before[rank]["drawn"]


def test_a_process_without_saved_random_state_keeps_its_own_and_no_other(restored):
    size, results, before, _ = restored
    if size == 4:
        assert results[3]["drawn"] not in [each["drawn"] for each in before]


def test_state_of_each_process_is_refused_on_another_number_of_processes(restored):
    size, results, _, _ = restored
    if size == 3:
        assert [each["own step"] for each in results] == [0, 1, 2]
    else:
        assert all("every process has saved its own state" in each["own"] for each in results)
        assert all(each["own step"] == 0 for each in results)


def test_what_does_not_fit_on_one_process_changes_nothing_on_any(restored):
    _, results, _, _ = restored
    assert all(each["does not fit"].startswith("MismatchError: ") for each in results)
    assert all(each["step after"] == 50 for each in results)


def test_a_missing_checkpoint_is_one_on_all(restored):
    assert all(each["no such file"].startswith("CheckpointNotFoundError: ") for each in restored[1])


def test_a_process_restores_alone_where_the_program_says_so(restored):
    assert all(each["alone"] is True for each in restored[1])


ABSENT = """
import time
checkpoint = Checkpoint(step=Variable(7))
ended = f"{directory}/ended"
if rank == 0:
    attempt("alone", lambda: checkpoint.write(f"{directory}/w", CheckpointOptions(**options)))
    open(ended, "w").close()
else:
    end = time.monotonic() + 60
    while not os.path.exists(ended) and time.monotonic() < end:
        time.sleep(0.05)
    results["other has ended"] = os.path.exists(ended)
"""


SYNCING = """
import time
from milepost.storage import LocalStorage

class Syncing(LocalStorage):
    def create(self, path):
        file = super().create(path)
        if f".data-0000{rank}-" in path:
            sync, file.sync = file.sync, lambda: synced(sync)
        return file

def synced(sync):
    if rank == 0:
        open(os.environ["MESSAGES"] + "/synced", "w").close()
    end = time.monotonic() + 20
    while not os.path.exists(os.environ["MESSAGES"] + "/synced") and time.monotonic() < end:
        time.sleep(0.01)
    results["is synced"] = os.path.exists(os.environ["MESSAGES"] + "/synced")
    sync()

checkpoint = Checkpoint(own=np.full(1000, float(rank)))
options |= dict(storage=Syncing(), each_process=["own"])
attempt("write", lambda: checkpoint.write(f"{directory}/w", CheckpointOptions(**options)))
"""


def test_process_0_makes_its_data_durable_while_the_others_still_write(tmp_path):
    """Process 1 reports only when process 0 has synced its file, so this would be false if process 0 waited for the report first."""
    assert [each["is synced"] for each in run(SYNCING, 2, tmp_path)] == [True, True]


def test_who_does_not_come_is_named_within_the_time_limit(tmp_path):
    results = run(ABSENT, 2, tmp_path, timeout=1)
    error = results[0]["alone"]
    assert error.startswith("CoordinationError: process 1 of 2 did not answer")
    assert "process_local=True" in error
    assert results[1]["other has ended"]
    assert not os.path.exists(f"{tmp_path}/w.index")


APART = """
own = f"{directory}/disk-{rank}"
os.makedirs(own)
os.chdir(own)
checkpoint = Checkpoint(step=Variable(7))
attempt("apart", lambda: checkpoint.write("run/w", CheckpointOptions(**options)))
"""


def test_storage_that_is_not_shared_is_found_out_by_the_first_save(tmp_path):
    results = run(APART, 2, tmp_path)
    assert all("the processes do not share the storage" in each["apart"] for each in results)
    assert not os.path.exists(f"{tmp_path}/disk-0/run/w.index")


DAMAGED = """
import milepost.errors
import warnings
warnings.simplefilter("ignore")
begun = []
checkpoint = Checkpoint(step=Variable(7))
manager = CheckpointManager(checkpoint, f"{directory}/run", 2, options=CheckpointOptions(**options))
manager.save()
manager.save()
def damage(*numbers):
    if rank == 0:
        for number in numbers:
            for name in os.listdir(f"{directory}/run"):
                if name.startswith(f"ckpt-{number}.data"):
                    os.truncate(f"{directory}/run/{name}", 0)
def resume():
    again = CheckpointManager(Checkpoint(step=Variable(0)), f"{directory}/run", 2, options=CheckpointOptions(**options), init_fn=lambda: begun.append(1))
    try:
        return again.restore_or_initialize()
    finally:
        results["skipped"] = {os.path.basename(each): str(problem) for each, problem in again.skipped.items()}
damage(2)
attempt("newest damaged", resume)
results["skipped one"] = results["skipped"]
os.makedirs(f"{directory}/other", exist_ok=True)
if rank == 0:
    for each in ("ckpt-1.index", "ckpt-1.data-00000-of-00003", "ckpt-1.data-00001-of-00003", "ckpt-1.data-00002-of-00003"):
        if os.path.exists(f"{directory}/run/{each}"):
            os.link(f"{directory}/run/{each}", f"{directory}/other/{each}")
warnings.simplefilter("ignore")
other = CheckpointManager(Checkpoint(step=Variable(0)), f"{directory}/other", 2, options=CheckpointOptions(**options))
attempt("adopted", other.adopt_checkpoints)
attempt("known", lambda: other.checkpoints)
attempt("restored", other.restore_or_initialize)
damage(1)
attempt("all damaged", resume)
results["begun"] = begun
"""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """What two processes say whose newest checkpoint is damaged, and then all."""
    directory = tmp_path_factory.mktemp("damaged")
    return directory, run(DAMAGED, 2, directory)


def test_all_processes_fall_back_to_the_same_checkpoint(damaged):
    assert [each["newest damaged"] for each in damaged[1]] == [f"{damaged[0]}/run/ckpt-1"] * 2


def test_no_process_begins_anew_where_all_checkpoints_are_damaged(damaged):
    assert all(each["all damaged"].startswith("CorruptCheckpointError: ") for each in damaged[1])
    assert all(each["begun"] == [] for each in damaged[1])


def test_all_processes_know_what_was_skipped_and_why(damaged):
    skipped = same([each["skipped one"] for each in damaged[1]])
    assert list(skipped) == ["ckpt-2"]
    assert "ckpt-2.data-" in skipped["ckpt-2"]


def test_all_processes_know_what_was_skipped_where_all_checkpoints_are_damaged(damaged):
    assert [sorted(each["skipped"]) for each in damaged[1]] == [["ckpt-1", "ckpt-2"]] * 2


def test_all_processes_adopt_the_same_checkpoints(damaged):
    path = f"{damaged[0]}/other/ckpt-1"
    assert [each["adopted"] for each in damaged[1]] == [[path]] * 2
    assert [each["known"] for each in damaged[1]] == [[path]] * 2
    assert [each["restored"] for each in damaged[1]] == [path] * 2
