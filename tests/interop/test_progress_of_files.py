"""Restores from files of other libraries, and from older files of TensorFlow, tell how far they are."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, Variable
from tests.checkpoint.test_progress import Told

ROWS = 300_000
TOTAL = ROWS * 4 * 4 + 4 * 4
"""The bytes of a Linear(300_000, 4) and of the like."""


def torch_file(directory):
    torch = pytest.importorskip("torch")
    path = str(directory / "model.pt")
    torch.save({"weight": torch.ones(4, ROWS), "bias": torch.ones(4)}, path)
    return path


def safetensors_file(directory):
    numpy = pytest.importorskip("safetensors.numpy")
    path = str(directory / "model.safetensors")
    numpy.save_file({"weight": np.ones((4, ROWS), np.float32), "bias": np.ones(4, np.float32)}, path)
    return path


def dcp_directory(directory):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    path = str(directory / "dcp")
    dcp.save({"weight": torch.ones(4, ROWS), "bias": torch.ones(4)}, checkpoint_id=path, no_dist=True)
    return path


def orbax_directory(directory):
    orbax = pytest.importorskip("orbax.checkpoint")
    path = str(directory / "orbax")
    orbax.PyTreeCheckpointer(use_ocdbt=False).save(
        path, {"weight": np.ones((4, ROWS), np.float32), "bias": np.ones(4, np.float32)}
    )
    return path


def tensorflow_checkpoint(directory):
    tf = pytest.importorskip("tensorflow")
    saved = tf.train.Checkpoint(weight=tf.Variable(tf.ones((4, ROWS))), bias=tf.Variable(tf.ones(4)))
    return saved.write(str(directory / "ckpt"))


def version_1(directory):
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name, initializer=np.ones(shape, np.float32), use_resource=True)
            for name, shape in (("weight", (4, ROWS)), ("bias", (4,)))
        ]
        session.run([each.initializer for each in variables])
        saver = tf.compat.v1.train.Saver(variables, write_version=tf.compat.v1.train.SaverDef.V1)
        return saver.save(session, str(directory / "v1"), write_meta_graph=False)


FILES = [torch_file, safetensors_file, dcp_directory, orbax_directory, tensorflow_checkpoint, version_1]


@pytest.mark.parametrize("make", FILES)
def test_a_restore_is_told_from_the_beginning_to_the_end(make, tmp_path):
    path = make(tmp_path)
    told = Told()
    live = Checkpoint(
        weight=Variable(np.zeros((4, ROWS), np.float32), name="weight"),
        bias=Variable(np.zeros(4, np.float32), name="bias"),
    )
    live.read(path, CheckpointOptions(progress=told)).assert_existing_objects_matched()
    assert live.weight.numpy().all()
    assert told.is_complete(TOTAL)


@pytest.mark.parametrize("make", FILES)
def test_loading_a_tree_is_told_from_the_beginning_to_the_end(make, tmp_path):
    path = make(tmp_path)
    told = Told()
    assert milepost.load(path, options=CheckpointOptions(progress=told))["weight"].all()
    saved = milepost.load_checkpoint(path)
    assert told.is_complete(told[0].bytes_total)
    assert told[0].bytes_total in (TOTAL, TOTAL + (8 if saved.has_tensor("save_counter") else 0))


@pytest.mark.parametrize("make", FILES)
def test_verification_is_told_from_the_beginning_to_the_end(make, tmp_path):
    told = Told()
    milepost.load_checkpoint(make(tmp_path), milepost.CheckpointOptions(progress=told)).verify()
    assert told.is_complete(told[0].bytes_total)
    assert told[0].bytes_total >= TOTAL


def test_modules_of_pytorch_are_told(tmp_path):
    torch = pytest.importorskip("torch")
    net, told = torch.nn.Linear(ROWS, 4), Told()
    options = CheckpointOptions(progress=told)
    path = Checkpoint(net=net).write(tmp_path / "ckpt", options)
    assert told.is_complete(TOTAL)
    told.clear()
    Checkpoint(net=net).read(path, options).assert_consumed()
    assert told.is_complete(TOTAL)


def test_models_of_keras_are_told(tmp_path):
    keras = pytest.importorskip("keras")
    told = Told()
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(4)])
    options = CheckpointOptions(progress=told)
    path = Checkpoint(model=model).write(tmp_path / "ckpt", options)
    size = 1000 * 4 * 4 + 4 * 4
    assert told.is_complete(size)
    told.clear()
    Checkpoint(model=model).read(path, options).assert_consumed()
    assert told.is_complete(size)


def test_trees_of_jax_are_told(tmp_path):
    jax = pytest.importorskip("jax")
    import milepost.jax

    told = Told()
    options = CheckpointOptions(progress=told)
    tree = {"weight": jax.numpy.ones((4, ROWS)), "bias": jax.numpy.ones(4)}
    path = milepost.jax.save(tmp_path / "params", tree, options=options)
    assert told.is_complete(TOTAL)
    told.clear()
    restored, _ = milepost.jax.restore(path, tree, options)
    assert restored["weight"].all()
    assert told.is_complete(TOTAL)


def test_large_arrays_of_jax_are_told_while_they_are_read():
    jax = pytest.importorskip("jax")
    import milepost.jax
    from tests.checkpoint.test_progress import large, slowly

    told = Told()
    options = slowly(None, pace=0.02)
    path = milepost.jax.save("run/params", {"v": large()}, options=options)
    options.progress = told
    restored, _ = milepost.jax.restore(path, {"v": jax.numpy.zeros((48, 1 << 20), "uint8")}, options)
    assert restored["v"].all()
    assert told.is_complete(48 << 20)
    assert len(told) > 4


def test_a_saver_of_sessions_tells_of_its_saves_and_restores(tmp_path):
    tf = pytest.importorskip("tensorflow")
    told = Told()
    options = CheckpointOptions(progress=told)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=np.ones(1000, np.float32), use_resource=True)
        session.run(variable.initializer)
        checkpoint = Checkpoint(v=variable)
        path = checkpoint.save(session, str(tmp_path / "ckpt"), options=options)
        assert told.is_complete(4000)
        told.clear()
        checkpoint.restore(session, path, options=options)
        assert told.is_complete(4000)
