"""Directories of Orbax, restored through the same machinery as any checkpoint."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import milepost
from milepost import CheckpointNotFoundError, CorruptCheckpointError, MismatchError, UnsupportedError

pytest.importorskip("jax")
pytest.importorskip("orbax.checkpoint")
pytest.importorskip("optax")
import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

import milepost.jax

TX = optax.chain(optax.clip(1.0), optax.adam(1e-3))


def state():
    params = {
        "l1": {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3, jnp.bfloat16)},
        "layers": [{"k": jnp.full(2, 3.0)}, {"k": jnp.full(2, 4, jnp.int8)}],
    }
    return {"params": params, "opt_state": TX.init(params), "step": 7, "rate": 0.5, "key": jax.random.key(3)}


def zeros(tree):
    def zero(leaf):
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        return leaf * 0

    return jax.tree.map(zero, tree)


def equal(first, second):
    def same(one, other):
        if isinstance(one, jax.Array) and jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        return type(one) is type(other) and np.array_equal(one, other)

    return jax.tree.all(jax.tree.map(same, first, second))


def saved(path, tree, **how):
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**how)).save(path, tree)
    return path


@contextlib.contextmanager
def as_an_ordinary_user():
    """The system lets root read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of POSIX systems")
@pytest.mark.parametrize("ocdbt", [False, True], ids=["plain", "ocdbt"])
def test_files_that_may_not_be_read_are_not_called_damaged(ocdbt):
    with tempfile.TemporaryDirectory(dir="/tmp") as home:  # the directories of tests are private
        os.chmod(home, 0o755)
        path = saved(f"{home}/item", {"a": np.arange(1000.0)}, use_ocdbt=ocdbt)
        unreadable = os.path.join(path, "d" if ocdbt else "a")
        os.chmod(unreadable, 0)
        with as_an_ordinary_user(), pytest.raises(milepost.StorageError) as caught:
            milepost.load(path)
        os.chmod(unreadable, 0o700)
    assert caught.value.errno == errno.EACCES
    assert caught.value.file == path
    assert "let this user read all of its files" in caught.value.remedy


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("orbax") / "state", state())


class TestTrees:
    @pytest.mark.parametrize(
        "how",
        [{}, {"use_ocdbt": False}, {"use_zarr3": True}, {"use_ocdbt": False, "use_zarr3": True}],
        ids=["OCDBT", "files", "OCDBT and zarr3", "files and zarr3"],
    )
    def test_every_layout_restores_into_a_tree(self, tmp_path, how):
        tree, status = milepost.jax.restore(saved(tmp_path / "state", state(), **how), zeros(state()))
        status.assert_consumed()
        assert equal(tree, state())

    def test_a_checkpoint_takes_it_by_name(self, directory):
        live = zeros(state())
        checkpoint = milepost.Checkpoint(params=live["params"], opt_state=live["opt_state"], step=milepost.Variable(0))
        with pytest.raises(MismatchError, match="int32"):
            checkpoint.restore(directory)
        checkpoint.step = milepost.Variable(np.int64(0))
        checkpoint.restore(directory).expect_partial().assert_existing_objects_matched()
        assert equal(checkpoint.params, state()["params"])
        assert equal(checkpoint.opt_state, state()["opt_state"])
        assert int(checkpoint.step) == 7

    def test_numpy_and_milepost_take_it_without_jax(self, directory):
        layer = milepost.Module()
        layer.w = milepost.Variable(np.zeros((2, 3), np.float32))
        milepost.Checkpoint(params={"l1": layer}).restore(directory).expect_partial().assert_existing_objects_matched()
        np.testing.assert_array_equal(layer.w.numpy(), np.arange(6).reshape(2, 3))

    def test_abstract_leaves_become_arrays(self, directory):
        like = {"params": {"l1": {"w": jax.ShapeDtypeStruct((2, 3), "float32")}}}
        tree, status = milepost.jax.restore(directory, like)
        status.expect_partial().assert_existing_objects_matched()
        assert equal(tree["params"]["l1"]["w"], state()["params"]["l1"]["w"])

    def test_names_are_those_of_the_tree(self, directory):
        names = dict(milepost.list_variables(directory))
        assert names["params/l1/w"] == [2, 3]
        assert names["opt_state/1/0/mu/layers/0/k"] == [2]

    def test_a_relative_path_will_do(self, directory, monkeypatch):
        monkeypatch.chdir(os.path.dirname(directory))
        reader = milepost.load_checkpoint(os.path.basename(directory))
        whole = milepost.load_checkpoint(directory)
        for name in reader.get_variable_to_shape_map():
            assert np.array_equal(reader.get_tensor(name), whole.get_tensor(name))

    def test_one_array_is_read_by_its_name(self, directory):
        np.testing.assert_array_equal(milepost.load_variable(directory, "params/layers/1/k"), [4, 4])

    def test_what_is_missing_and_what_is_left_over_is_reported(self, directory):
        _, status = milepost.jax.restore(directory, {"params": {"l1": {"w": jnp.zeros((2, 3)), "more": jnp.zeros(1)}}})
        status.expect_partial()
        assert [each.key for each in status.report().missing] == ["params/l1/more/.ATTRIBUTES/VARIABLE_VALUE"]
        assert "params/l1/b" in [each.key for each in status.report().unexpected]

    def test_another_shape_is_refused(self, directory):
        with pytest.raises(MismatchError, match=r"float32\[3,2\], as the live object has it"):
            milepost.jax.restore(directory, {"params": {"l1": {"w": jnp.zeros((3, 2))}}})

    def test_keys_of_another_generator_are_refused(self, directory):
        with pytest.raises(MismatchError, match=r"expected: rbg, as the live key has it"):
            milepost.jax.restore(directory, {"key": jax.random.key(0, impl="rbg")})

    def test_text_is_read(self, tmp_path):
        path = saved(tmp_path / "text", {"name": "a model", "w": np.ones(2)})
        assert milepost.load_variable(path, "name") == b"a model"
        np.testing.assert_array_equal(milepost.load_variable(path, "w"), [1.0, 1.0])

    def test_sharded_arrays_are_read(self, tmp_path):
        code = (
            "import os, sys; os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=2'\n"
            "import jax, numpy as np, orbax.checkpoint as ocp\n"
            "mesh = jax.sharding.Mesh(np.array(jax.devices()), 'x')\n"
            "spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('x'))\n"
            "ocp.PyTreeCheckpointer().save(sys.argv[1], {'w': jax.device_put(np.arange(8.0, dtype='float32'), spread)})\n"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "it")], capture_output=True, check=True)
        tree, status = milepost.jax.restore(tmp_path / "it", {"w": jnp.zeros(8)})
        status.assert_consumed()
        assert tree["w"].tolist() == list(range(8))

    def test_more_than_one_batch_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr("milepost.foreign.jax.orbax._BATCH", 100)
        tree = {f"w{number}": jnp.full(20, number, jnp.float32) for number in range(7)}
        new, status = milepost.jax.restore(saved(tmp_path / "many", tree), zeros(tree))
        status.assert_consumed()
        assert equal(new, tree)


class TestManagers:
    @pytest.fixture
    def steps(self, tmp_path):
        with ocp.CheckpointManager(tmp_path / "run") as manager:
            for step in (9, 10):
                manager.save(step, args=ocp.args.StandardSave({"w": jnp.full(2, float(step))}))
        return tmp_path / "run"

    @pytest.mark.parametrize("inside", ["10", "10/default"])
    def test_a_step_is_restored(self, steps, inside):
        tree, status = milepost.jax.restore(steps / inside, {"w": jnp.zeros(2)})
        status.assert_consumed()
        assert tree["w"].tolist() == [10.0, 10.0]

    def test_a_directory_of_steps_is_none_and_they_are_named(self, steps):
        with pytest.raises(CheckpointNotFoundError, match=r"run/9', '.*run/10'"):
            milepost.jax.restore(steps, {"w": jnp.zeros(2)})

    def test_items_beside_each_other_are_not_called_steps(self, tmp_path):
        saved(tmp_path / "params", {"w": jnp.ones(2)})
        with pytest.raises(CheckpointNotFoundError, match=r"holds 1 item of Orbax(.|\n)*remedy: pass '.*params'$"):
            milepost.list_variables(tmp_path)
        saved(tmp_path / "others", {"w": jnp.ones(2)})
        with pytest.raises(
            CheckpointNotFoundError, match=r"holds 2 items of Orbax(.|\n)*pass one of '.*others', '.*params'$"
        ):
            milepost.list_variables(tmp_path)

    def test_items_of_a_step_go_by_their_names(self, tmp_path):
        with ocp.CheckpointManager(tmp_path) as manager:
            items = {"state": ocp.args.StandardSave({"w": jnp.ones(2)}), "meta": ocp.args.JsonSave({"epoch": 3})}
            manager.save(1, args=ocp.args.Composite(**items))
        checkpoint = milepost.Checkpoint(state={"w": jnp.zeros(2)}, meta={"epoch": milepost.Variable(0)})
        checkpoint.restore(tmp_path / "1").assert_consumed()
        assert checkpoint.state["w"].tolist() == [1.0, 1.0]
        assert int(checkpoint.meta["epoch"]) == 3

    def test_an_item_of_another_kind_is_named(self, steps):
        (steps / "10" / "notes").mkdir()
        with pytest.warns(milepost.UnrestoredWarning, match="10/notes: this item of a step"):
            milepost.list_variables(steps / "10")


class TestDamage:
    def test_a_directory_that_was_never_finished_is_refused(self, tmp_path, directory):
        path = shutil.copytree(directory, tmp_path / "state.orbax-checkpoint-tmp")
        with pytest.raises(CorruptCheckpointError, match="not finished"):
            milepost.list_variables(path)

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tree_metadata": 3}'])
    def test_damaged_metadata_is_refused(self, tmp_path, directory, content):
        path = shutil.copytree(directory, tmp_path / "state")
        (path / "_METADATA").write_bytes(content)
        with pytest.raises(CorruptCheckpointError):
            milepost.list_variables(path)

    def test_an_array_for_which_there_is_no_memory_is_refused(self, tmp_path):
        """TensorStore would end the process."""
        path = saved(tmp_path / "item", {"w": np.ones((2, 3), np.float32)}, use_ocdbt=False)
        described = path / "w" / ".zarray"
        described.write_text(json.dumps(json.loads(described.read_text()) | {"shape": [10**15, 1024]}))
        with pytest.raises(UnsupportedError, match="no memory") as caught:
            milepost.load_checkpoint(path).get_tensor("w")
        assert str(path) in str(caught.value)

    def test_damaged_arrays_are_found_before_anything_changes(self, tmp_path):
        path = saved(tmp_path / "state", {"a": np.arange(100.0), "b": np.arange(100.0)}, use_ocdbt=False)
        (chunk,) = [each for each in (path / "b").rglob("*") if each.is_file() and not each.name.startswith(".z")]
        chunk.write_bytes(b"damaged")
        variable = milepost.Variable(np.zeros(100))
        with pytest.raises(CorruptCheckpointError) as caught:
            milepost.Checkpoint(a=variable, b=milepost.Variable(np.zeros(100))).restore(path)
        assert caught.value.key == "b"
        assert not variable.numpy().any()

    def test_a_directory_of_nothing_gives_the_usual_error(self, tmp_path):
        with pytest.raises(CheckpointNotFoundError):
            milepost.jax.restore(tmp_path, {"w": jnp.zeros(2)})


class TestNNX:
    @pytest.fixture
    def nnx(self):
        return pytest.importorskip("flax.nnx")

    def made(self, nnx, seed):
        rngs = nnx.Rngs(seed)
        layers = nnx.Linear(2, 3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)
        model = nnx.Sequential(*layers, nnx.Linear(3, 1, rngs=rngs))
        return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)

    def step(self, nnx, model, optimizer):
        optimizer.update(model, nnx.grad(lambda net: (net(jnp.ones((4, 2))) ** 2).sum())(model))
        return jax.tree.map(lambda leaf: np.asarray(leaf), nnx.state(model, nnx.Param))

    def test_states_restore_into_modules_and_optimizers(self, tmp_path, nnx):
        model, optimizer = self.made(nnx, 0)
        self.step(nnx, model, optimizer)
        path = saved(tmp_path / "state", {"model": nnx.state(model), "optimizer": nnx.state(optimizer)})
        assert "value" in json.loads((path / "_METADATA").read_text())["tree_metadata"].popitem()[0]
        other, restored = self.made(nnx, 1)
        milepost.Checkpoint(model=other, optimizer=restored).restore(path).assert_consumed()
        first, second = self.step(nnx, model, optimizer), self.step(nnx, other, restored)
        assert equal(first, second)

    def test_pure_dicts_restore_into_modules(self, tmp_path, nnx):
        model, other = nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.Linear(2, 3, rngs=nnx.Rngs(1))
        path = saved(tmp_path / "state", nnx.to_pure_dict(nnx.state(model)))
        milepost.Checkpoint(other).read(path).assert_consumed()
        assert equal(model.kernel[...], other.kernel[...])


MEASURE = """
import sys, numpy as np, milepost, orbax.checkpoint
checkpoint = milepost.Checkpoint(**{f"v{n}": milepost.Variable(np.ones((4 << 20,), np.float32)) for n in range(16)})
milepost.load_checkpoint(sys.argv[1]).get_tensor("small")
open("/proc/self/clear_refs", "w").write("5")
def peak():
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
checkpoint.restore(sys.argv[1]).expect_partial().assert_existing_objects_matched()
print(peak() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="only Linux tells")
def test_a_restore_takes_far_less_memory_than_the_state_again(tmp_path):
    arrays = {f"v{n}": np.zeros((4 << 20,), np.float32) for n in range(16)}
    path = saved(tmp_path / "state", {**arrays, "small": np.zeros(2)})
    # Else the C library keeps what Orbax's threads gave back, for as many threads as there happen to be.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
    command = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) < 96  # of 256 MiB


def test_a_step_with_metrics_is_read_and_the_metrics_beside_it(tmp_path):
    with ocp.CheckpointManager(
        tmp_path, options=ocp.CheckpointManagerOptions(best_fn=lambda each: each["loss"])
    ) as kept:
        kept.save(1, args=ocp.args.StandardSave({"w": jnp.ones(2)}), metrics={"loss": 1.5})
    tree, status = milepost.jax.restore(tmp_path / "1", {"w": jnp.zeros(2), "metrics": {"loss": 0.0}})
    status.assert_consumed()
    assert tree["w"].tolist() == [1, 1]
    assert tree["metrics"] == {"loss": 1.5}


def test_an_item_that_is_no_tree_is_skipped_and_named(tmp_path):
    items = {"state": ocp.args.StandardSave({"w": jnp.ones(2)}), "key": ocp.args.JaxRandomKeySave(jax.random.key(0))}
    with ocp.CheckpointManager(tmp_path) as kept:
        kept.save(1, args=ocp.args.Composite(**items))
    with pytest.warns(milepost.UnrestoredWarning, match="key: this item of a step of Orbax is skipped"):
        tree, status = milepost.jax.restore(tmp_path / "1", {"state": {"w": jnp.zeros(2)}})
    status.assert_consumed()
    assert tree["state"]["w"].tolist() == [1, 1]


def test_an_iterator_of_grain_is_skipped_and_named(tmp_path):
    grain = pytest.importorskip("grain")
    iterator = iter(grain.MapDataset.range(9).to_iter_dataset())
    items = {"state": ocp.args.StandardSave({"w": jnp.ones(2)}), "data": grain.checkpoint.CheckpointSave(iterator)}
    with ocp.CheckpointManager(tmp_path) as kept:
        kept.save(1, args=ocp.args.Composite(**items))
    with pytest.warns(milepost.UnrestoredWarning, match="data: this item of a step of Orbax is skipped"):
        tree, status = milepost.jax.restore(tmp_path / "1", {"state": {"w": jnp.zeros(2)}})
    status.assert_consumed()
    assert tree["state"]["w"].tolist() == [1, 1]


def test_what_version_1_saves_is_the_tree_itself(tmp_path):
    version_1 = pytest.importorskip("orbax.checkpoint.experimental.v1")
    version_1.save(tmp_path / "saved", {"w": jnp.ones(2)})
    tree, status = milepost.jax.restore(tmp_path / "saved", {"w": jnp.zeros(2)})
    status.assert_consumed()
    assert tree["w"].tolist() == [1, 1]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.timeout(60)
def test_a_named_pipe_among_the_chunks_is_refused_at_once(tmp_path):
    path = saved(tmp_path / "c", {"v": np.arange(6.0)}, use_ocdbt=False)
    os.remove(path / "v" / "0")
    os.mkfifo(path / "v" / "0")
    with pytest.raises(CorruptCheckpointError, match="neither a file nor a directory") as caught:
        milepost.load(str(path))
    assert caught.value.file.endswith(os.path.join("v", "0"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.timeout(60)
def test_a_named_pipe_in_place_of_the_metadata_is_refused_at_once(tmp_path):
    msgpack = pytest.importorskip("msgpack")
    (tmp_path / "checkpoint").write_bytes(msgpack.packb({"a": 1}))
    os.mkfifo(tmp_path / "_METADATA")
    with pytest.raises(CorruptCheckpointError, match="neither a file nor a directory"):
        milepost.load(str(tmp_path))


def test_a_tree_of_very_many_levels_is_refused(tmp_path):
    msgpack = pytest.importorskip("msgpack")
    tree = 1
    for _ in range(400):
        tree = [tree]
    (tmp_path / "checkpoint").write_bytes(msgpack.packb({"a": tree}))
    with pytest.raises(UnsupportedError, match="levels"):
        milepost.load(str(tmp_path))


@pytest.mark.skipif(sys.platform == "win32", reason="not every user of Windows may make links")
@pytest.mark.timeout(60)
def test_links_that_lead_back_are_followed_once(tmp_path):
    path = saved(tmp_path / "c", {"v": np.arange(6.0)}, use_ocdbt=False)
    for name in ("first", "second"):
        os.symlink(path, path / name)
    assert milepost.load(str(path))["v"].tolist() == list(range(6))
