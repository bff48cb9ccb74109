"""How often a restore reads large values: once if nothing old can be lost, and otherwise twice, unless it is told not to."""

from collections import Counter

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointOptions, CorruptCheckpointError, Module, Variable
from milepost.storage import MemoryStorage
from tests.bundle.bundles import content, put, write

BYTES = 1 << 20


class CountingFile:
    """Counts the bytes that are read of a file."""

    def __init__(self, file, counted):
        self.file = file
        self.counted = counted

    def __getattr__(self, name):
        return getattr(self.file, name)

    def read_into(self, offset, buffer):
        self.counted["bytes"] += memoryview(buffer).nbytes
        self.file.read_into(offset, buffer)


class CountingStorage(MemoryStorage):
    def __init__(self):
        super().__init__()
        self.counted = Counter()

    def open(self, path):
        file = super().open(path)
        return CountingFile(file, self.counted) if ".data-" in path else file

    def times(self):
        """How often each mebibyte was read since the last call."""
        return self.counted.pop("bytes", 0) / BYTES


class SlotsApart:
    """Slot variables go to the second data file."""

    def assign(self, writes):
        return 2, [
            (number, write._replace(shard=int(".OPTIMIZER_SLOT" in write.key))) for number, write in enumerate(writes)
        ]


def large(value):
    return np.full(BYTES // 4, value, np.float32)


def damage(storage, name):
    """Flips a byte in the middle of a file."""
    data = bytearray(content(storage, name))
    data[len(data) // 2] ^= 1
    storage.remove(name)
    put(storage, name, bytes(data))


@pytest.mark.parametrize(("verify_first", "times"), [(True, 2), (False, 1)])
@pytest.mark.parametrize("make", [large, lambda value: Variable(large(value))], ids=["array", "variable"])
def test_large_values_that_replace_old_ones(verify_first, times, make):
    storage = CountingStorage()
    options = CheckpointOptions(storage=storage, verify_first=verify_first)
    checkpoint = Checkpoint(v=make(1))
    path = checkpoint.write("run/ckpt", options)
    live = Checkpoint(v=make(0))
    live.read(path, options).assert_consumed()
    assert np.asarray(live.v)[-1] == 1
    assert storage.times() == times


def test_slot_variables_that_a_restore_makes_are_read_once():
    torch = pytest.importorskip("torch")

    def make():
        net = torch.nn.Linear(512, 512, bias=False)
        return Checkpoint(net=net, optimizer=torch.optim.Adam(net.parameters()))

    saved, live = make(), make()
    saved.net(torch.ones(512)).sum().backward()
    saved.optimizer.step()
    storage = CountingStorage()
    options = CheckpointOptions(storage=storage)
    path = saved.write("run/ckpt", options)
    live.read(path, options).assert_consumed()
    moment = live.optimizer.state[live.net.weight]["exp_avg"]
    assert torch.equal(moment, saved.optimizer.state[saved.net.weight]["exp_avg"])
    # the weight twice, and both moments once
    assert storage.times() == pytest.approx(2 + 1 + 1, abs=0.01)


def test_a_damaged_slot_variable_leaves_the_optimizer_without_state():
    torch = pytest.importorskip("torch")

    def make():
        net = torch.nn.Linear(512, 512, bias=False)
        return Checkpoint(net=net, optimizer=torch.optim.SGD(net.parameters(), momentum=0.9))

    saved, live = make(), make()
    saved.net(torch.ones(512)).sum().backward()
    saved.optimizer.step()
    storage = CountingStorage()
    options = CheckpointOptions(storage=storage, experimental_sharding_callback=SlotsApart())
    path = saved.write("run/ckpt", options)
    before = live.net.weight.clone()
    damage(storage, "run/ckpt.data-00001-of-00002")
    with pytest.raises(CorruptCheckpointError):
        live.read(path, CheckpointOptions(storage=storage))
    assert torch.equal(live.net.weight, before)
    assert not live.optimizer.state


def test_arrays_of_jax_are_read_once():
    jnp = pytest.importorskip("jax.numpy")
    milepost_jax = pytest.importorskip("milepost.jax")
    storage = CountingStorage()
    options = CheckpointOptions(storage=storage)
    path = milepost_jax.save("run/ckpt", {"v": jnp.asarray(large(1)), "w": large(2)}, options)
    tree, status = milepost_jax.restore(path, {"v": jnp.asarray(large(0)), "w": large(0)}, options)
    status.assert_consumed()
    assert (float(tree["v"][-1]), float(tree["w"][-1])) == (1, 2)
    assert storage.times() == 2


def test_an_array_of_jax_that_is_damaged_changes_nothing():
    jnp = pytest.importorskip("jax.numpy")
    storage = CountingStorage()
    options = CheckpointOptions(storage=storage)
    path = Checkpoint(first=Variable(1.0), second=jnp.asarray(large(1))).write("run/ckpt", options)
    damage(storage, "run/ckpt.data-00000-of-00001")
    live = Checkpoint(first=Variable(0.0), second=jnp.asarray(large(0)))
    with pytest.raises(CorruptCheckpointError):
        live.read(path, options)
    assert (live.first.numpy(), float(live.second[0])) == (0.0, 0.0)


def test_a_damaged_value_that_is_read_once_is_said_to_have_mixed_the_values():
    storage = CountingStorage()
    options = CheckpointOptions(storage=storage, verify_first=False)

    def make(value):
        model = Module()
        model.small, model.large = Variable(float(value)), [Variable(large(value)) for _ in range(20)]
        return Checkpoint(model=model)

    path = make(1).write("run/ckpt", options)
    damage(storage, "run/ckpt.data-00000-of-00001")
    with pytest.raises(CorruptCheckpointError) as raised:
        make(0).read(path, options)
    assert "some objects hold restored values now and others hold their old values" in str(raised.value)


def test_damaged_values_change_nothing_by_default():
    storage = CountingStorage()
    options = CheckpointOptions(storage=storage)
    path = Checkpoint(v=[Variable(large(1)) for _ in range(20)]).write("run/ckpt", options)
    damage(storage, "run/ckpt.data-00000-of-00001")
    live = Checkpoint(v=[Variable(large(0)) for _ in range(20)])
    with pytest.raises(CorruptCheckpointError):
        live.read(path, options)
    assert all((each.numpy() == 0).all() for each in live.v)


def test_values_of_a_file_without_an_object_graph_are_read_once_too():
    storage = CountingStorage()
    write(storage, "run/ckpt", {"v": large(1)})
    live = Checkpoint(v=Variable(large(0), name="v"))
    live.read("run/ckpt", CheckpointOptions(storage=storage, verify_first=False))
    assert live.v.numpy()[-1] == 1
    assert storage.times() == 1


def test_a_damaged_file_of_another_library_is_found_too(tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, v=large(1))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    live = Checkpoint(v=Variable(large(0)))
    with pytest.raises(CorruptCheckpointError):
        live.read(path, CheckpointOptions(verify_first=False))
