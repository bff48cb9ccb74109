"""JAX: arrays over two processes of two devices, restored by one, two and four processes."""

import json

import numpy as np
import pytest

import milepost
from tests.several.programs import JAX, run, same

jax = pytest.importorskip("jax")
pytest.importorskip("optax")
pytest.importorskip("flax")

from tests.several import jax_states  # noqa: E402

DEVICES = 4
HEAD = """
import jax.numpy as jnp
from flax import nnx
import milepost.jax
from tests.several import jax_states
from tests.several.jax_states import OTHERS, SAVED, abstract, compared, is_same, keys, sharded, tree, words
together = CheckpointOptions(**options)
"""
SAVES = """
path = milepost.jax.save(directory + "/arrays", {"arrays": tree(SAVED), "keys": keys(3), "key": jax.random.key(9), "n": 4}, together)

# A module, a reference, and what NNX holds by reference.
class Held(milepost.Module):
    def __init__(self, seed):
        self.ref = jax.new_ref(sharded(seed * np.arange(640 * 480, dtype=np.float32).reshape(640, 480), ("line", "d")))
        self.variable = nnx.Param(sharded(np.full((8, 3), seed, np.float32), ("grid", "b")))
        self.late = None

held = Held(2)
held.late = {"w": sharded(np.arange(8.0, dtype=np.float32), ("line", "d"))}
Checkpoint(held=held).write(directory + "/held", together)

# A training.
training = jax_states.Training(0)
manager = CheckpointManager(Checkpoint(model=training.model, optimizer=training.optimizer), directory + "/run", max_to_keep=3, options=together)
losses = [training.step(number) for number in range(3)]
manager.save(3)
results["saved state"] = training.state()
results["losses"] = losses + [training.step(number) for number in range(3, 6)]
results["last state"] = training.state()

# A series of trees, saved while the program goes on.
series = milepost.jax.TreeManager(directory + "/series", max_to_keep=2, options=CheckpointOptions(**options, enable_async=True))
state = {"w": sharded(np.zeros((640, 480), np.float32), ("grid", "a", "b")), "step": 0}
for _ in range(3):
    state = {"w": state["w"] + 1, "step": state["step"] + 1}
    series.save(state)
series.sync()
results["series"] = [each.rpartition("/")[2] for each in series.checkpoints]
"""
RESTORES = """
zeros, whole = tree(OTHERS, plain=0), {"key": jax.random.key(0), "n": 0}
path = directory + "/arrays"
restored, status = milepost.jax.restore(path, {"arrays": zeros, "keys": keys(0, ("grid", "b")), **whole}, together)
status.assert_consumed()
results["arrays"] = compared(restored["arrays"], OTHERS)
results["keys"] = words(restored["keys"]) == words(keys(3, ("grid", "b")))
results["key and number"] = [jax.random.key_data(restored["key"]).tolist(), restored["n"]]
results["given tree"] = all(not np.asarray(shard.data).any() for leaf in zeros.values() for shard in leaf.addressable_shards)

shapes = {"arrays": abstract(OTHERS), "keys": jax.ShapeDtypeStruct((8,), keys(0).dtype, sharding=jax_states.sharding(("grid", "a")))}
restored, status = milepost.jax.restore(path, {**shapes, **whole}, together)
status.assert_consumed()
results["abstract arrays"] = compared(restored["arrays"], OTHERS)
results["abstract keys"] = words(restored["keys"]) == words(keys(3, ("grid", "a")))

class Held(milepost.Module):
    pass

held = Held()
held.ref = jax.new_ref(sharded(np.zeros((640, 480), np.float32), ("grid", "b", "a")))
held.variable = nnx.Param(sharded(np.zeros((8, 3), np.float32), ("line", "d")))
variable = held.variable
Checkpoint(held=held).read(directory + "/held", together)
held.late = {"w": sharded(np.zeros(8, np.float32), ("grid", "a"))}
numbers = np.arange(640 * 480, dtype=np.float32).reshape(640, 480)
results["ref"] = is_same(held.ref[...], 2 * numbers)
results["variable"] = held.variable is variable and is_same(variable[...], np.full((8, 3), 2, np.float32))
results["late"] = is_same(held.late["w"], np.arange(8.0, dtype=np.float32))

training = jax_states.Training(5)
manager = CheckpointManager(Checkpoint(model=training.model, optimizer=training.optimizer), directory + "/run", max_to_keep=3, options=together)
results["resumed from"] = manager.restore_or_initialize().rpartition("/")[2]
results["restored state"] = training.state()
results["losses"] = [training.step(number) for number in range(3, 6)]
results["last state"] = training.state()

series = milepost.jax.TreeManager(directory + "/series", options=together)
state, status = series.restore_latest({"w": sharded(np.zeros((640, 480), np.float32), ("line", "d")), "step": 0})
status.assert_consumed()
results["series"] = [state["step"], is_same(state["w"], np.full((640, 480), 3, np.float32))]
"""


def flags(processes):
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES // processes}"}


def union(results, name):
    joined = {}
    for each in results:
        joined |= each[name]
    return joined


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with what two processes have saved, and what they say."""
    directory = tmp_path_factory.mktemp("jax")
    return directory, run(HEAD + SAVES, 2, directory, JAX, environment=flags(2))


@pytest.fixture(scope="module", params=[2, 1, 4], ids=["on two processes", "on one process", "on four processes"])
def restored(request, saved):
    """What processes that have restored say."""
    return run(HEAD + RESTORES, request.param, saved[0], JAX, environment=flags(request.param))


def test_files_hold_whole_tensors(saved):
    """A program without JAX reads each tensor as one."""
    found = milepost.load_checkpoint(str(saved[0] / "arrays"))
    for name, value in jax_states.values().items():
        tensor = found.get_tensor(f"arrays/{name}/.ATTRIBUTES/VARIABLE_VALUE")
        assert (tensor.dtype, tensor.tobytes()) == (np.asarray(value).dtype, np.asarray(value).tobytes()), name


def test_tensorflow_reads_the_files(saved):
    tensorflow = pytest.importorskip("tensorflow")
    found = tensorflow.train.load_checkpoint(str(saved[0] / "arrays"))
    for name, value in jax_states.values().items():
        if value.dtype.name != "int4":  # which TensorFlow's reader does not return
            tensor = found.get_tensor(f"arrays/{name}/.ATTRIBUTES/VARIABLE_VALUE")
            assert tensor.tobytes() == np.asarray(value).tobytes(), name


def test_each_element_is_written_once_and_each_process_writes_half(saved):
    """All data files together are as large as the tensors, and those of the two processes are of about the same size."""
    files = sorted(saved[0].glob("arrays.data-*"))
    sizes = [file.stat().st_size for file in files]
    small = 64 << 10
    tensors = sum(np.asarray(value).nbytes for value in jax_states.values().values())
    assert tensors <= sum(sizes) < tensors + small
    assert len(files) == 3
    assert sizes[2] < small
    # Of the three devices, process 0 has two; so it holds two thirds of that tensor.
    assert abs(sizes[0] - sizes[1]) < jax_states.values()["over_three"].nbytes / 3 + small


def test_values_get_any_other_sharding(restored):
    for each in restored:
        assert [name for name, good in each["arrays"].items() if not good] == []


def test_descriptions_become_sharded_arrays(restored):
    for each in restored:
        assert [name for name, good in each["abstract arrays"].items() if not good] == []


def test_keys_over_processes_are_restored(restored):
    assert [(each["keys"], each["abstract keys"]) for each in restored] == [(True, True)] * len(restored)


def test_values_that_all_hold_are_restored(restored):
    same([each["key and number"] for each in restored])
    assert restored[0]["key and number"] == [jax.random.key_data(jax.random.key(9)).tolist(), 4]


def test_the_given_tree_stays_as_it_is(restored):
    assert all(each["given tree"] for each in restored)


def test_references_and_variables_are_restored_in_place(restored):
    assert [(each["ref"], each["variable"]) for each in restored] == [(True, True)] * len(restored)


def test_a_tree_that_comes_after_the_restore_is_restored(restored):
    assert all(each["late"] for each in restored)


def test_a_training_has_its_state_again_bit_for_bit(saved, restored):
    assert same([each["resumed from"] for each in restored]) == "ckpt-3"
    assert union(restored, "restored state") == union(saved[1], "saved state")


def test_a_training_goes_on_with_the_same_losses(saved, restored):
    """Exactly the same on as many processes; other numbers of processes add in another order."""
    losses, before = same([each["losses"] for each in restored]), same([each["losses"] for each in saved[1]])
    if len(restored) == 2:
        assert losses == before[3:]
        assert union(restored, "last state") == union(saved[1], "last state")
    assert losses == pytest.approx(before[3:], rel=1e-5)


def test_a_series_of_trees_that_was_saved_in_the_background_is_restored(saved, restored):
    assert same([each["series"] for each in saved[1]]) == ["ckpt-2", "ckpt-3"]
    assert all(each["series"] == [3, True] for each in restored)


DIFFERENT = """
from milepost.adapters.coordinators import found_coordinator
from milepost.testing.coordinator_suite import check_here
results["checks"] = check_here(found_coordinator())
import grain

def message(name, action):
    try:
        action()
    except MilepostError as error:
        results[name] = [type(error).__name__, str(error)]

# Arrays and keys that differ where all should hold the same.
own = {"w": jnp.full(3, rank), "key": jax.random.key(rank)}
message("different", lambda: milepost.jax.save(directory + "/different", own, together))
each = CheckpointOptions(**options, each_process=["w", "key"])
milepost.jax.save(directory + "/own", own, each)
restored, status = milepost.jax.restore(directory + "/own", {"w": jnp.zeros(3, int), "key": jax.random.key(5)}, each)
results["own"] = [restored["w"].tolist(), jax.random.key_data(restored["key"]).tolist()]

# An array on devices of process 1 alone.
only = jax_states.NamedSharding(jax_states.Mesh(np.array(jax.devices()[2:]), ("d",)), jax_states.PartitionSpec("d"))
parts = [jax.device_put(np.ones(2, np.float32), device) for device in only.addressable_devices]
stage = jax.make_array_from_single_device_arrays((4,), only, parts, dtype=np.float32)
message("stage", lambda: milepost.jax.save(directory + "/stage", {"stage": stage}, together))

# An array in the plain state of an object.
class Plain:
    def state_dict(self):
        return {"w": sharded(np.arange(4.0), ("line", "d"))}
    def load_state_dict(self, state):
        pass

message("plain", lambda: Checkpoint(loader=Plain()).write(directory + "/plain", together))

# A restore that fails on all, of which process 1 alone sees why.
good = {"w": sharded(np.ones((640, 480), np.float32), ("line", "d")), "n": 1}
milepost.jax.save(directory + "/good", good, together)

class Refusing(milepost.Module):
    def __init__(self):
        self.ref = jax.new_ref(sharded(np.full((640, 480), 5.0, np.float32), ("grid", "a", "b")))

refusing = Refusing()
saved = Refusing()
milepost.Checkpoint(part=saved, n=Variable(1)).write(directory + "/refs", together)
wrong = milepost.Checkpoint(part=refusing, n=Variable(np.zeros(2 + rank)))
refusing.ref[...] = refusing.ref[...] + 1
message("mismatch", lambda: wrong.read(directory + "/refs", together))
results["unchanged"] = is_same(refusing.ref[...], np.full((640, 480), 6.0, np.float32))

# A restore that counts what it reads of the data files.
from milepost.storage import LocalStorage
from tests.restoring.test_reading_once import CountingFile

class Counting(LocalStorage):
    def open(self, path):
        file = super().open(path)
        return CountingFile(file, counted) if ".data-" in path else file

counted = dict(bytes=0)
restored, status = milepost.jax.restore(directory + "/good", {**good, "n": 0}, CheckpointOptions(storage=Counting(), **options))
results["read"] = [counted["bytes"], is_same(restored["w"], np.ones((640, 480), np.float32))]

# Iterators over data: each process has its own.
def iterator():
    return iter(grain.MapDataset.range(100)[rank::size].to_iter_dataset())

data = iterator()
results["seen"] = [int(next(data)) for _ in range(2 + rank)]
Checkpoint(data=data).write(directory + "/data", together)
results["next"] = [int(next(data)) for _ in range(2)]
data = iterator()
Checkpoint(data=data).read(directory + "/data", together).assert_consumed()
results["restored next"] = [int(next(data)) for _ in range(2)]
"""


@pytest.fixture(scope="module")
def different(tmp_path_factory):
    pytest.importorskip("grain")
    directory = tmp_path_factory.mktemp("different")
    return directory, run(HEAD + DIFFERENT, 2, directory, JAX, environment=flags(2))


def test_the_coordinator_of_jax_passes_its_checks(different):
    assert [each["checks"] for each in different[1]] == [{}, {}], json.dumps(different[1], indent=1)


def test_arrays_that_differ_are_refused_with_their_paths(different):
    kind, text = (
        same([[kind for kind, _ in [each["different"]]] for each in different[1]])[0],
        different[1][1]["different"][1],
    )
    assert kind == "CoordinationError"
    assert "different values" in text
    assert "each_process=['" in text
    assert not list(different[0].glob("different*"))


def test_each_process_keeps_its_own_where_the_program_says_so(different):
    expected = [[[rank] * 3, jax.random.key_data(jax.random.key(rank)).tolist()] for rank in range(2)]
    assert [each["own"] for each in different[1]] == expected


def test_an_array_that_one_process_alone_knows_is_refused_with_its_path(different):
    for each in different[1]:
        assert each["stage"][0] == "CoordinationError"
        assert "stage" in each["stage"][1]


def test_an_array_over_processes_in_plain_state_is_refused_with_what_to_do(different):
    for each in different[1]:
        assert each["plain"][0] == "UnsupportedError"
        assert "replicate it before saving" in each["plain"][1]


def test_a_restore_that_fails_changes_nothing_on_any_process(different):
    assert [each["mismatch"][0] for each in different[1]] == ["MismatchError"] * 2
    assert [each["unchanged"] for each in different[1]] == [True, True]


def test_the_parts_of_an_array_are_read_once(different):
    """No old value can be lost, because the arrays are new."""
    assert [each["read"] for each in different[1]] == [[640 * 480 * 4 // 2, True]] * 2


def test_each_process_goes_on_in_its_own_data(different):
    for each in different[1]:
        assert each["restored next"] == each["next"]
    assert different[1][0]["next"] == [4, 6]
    assert different[1][1]["next"] == [7, 9]
