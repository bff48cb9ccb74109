"""A checkpoint as the saver of an Estimator, in TensorFlow 2.15, the last that has Estimators."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import milepost

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
if not hasattr(tf, "estimator"):
    pytest.skip("Estimators left TensorFlow after 2.15", allow_module_level=True)
GUIDE = Path(__file__).parents[2] / "examples" / "guide_estimator.py"
OPTIMIZERS = {
    "sgd": lambda: tf.keras.optimizers.SGD(0.01, momentum=0.9),
    "adam": lambda: tf.keras.optimizers.Adam(0.1),
    "oldest_adam": lambda: tf.keras.optimizers.legacy.Adam(0.1),
    "tensorflow_1_adam": lambda: tf.compat.v1.train.AdamOptimizer(0.1),
}
UPDATING = ("oldest_adam", "tensorflow_1_adam")
"""Those whose `apply_gradients` returns the update in a graph; the others' returns the count, so nothing is trained."""


class Net(tf.keras.Model):  # type: ignore[name-defined]
    def __init__(self):
        super().__init__()
        self.l1 = tf.keras.layers.Dense(5, kernel_initializer="ones")

    def call(self, x):
        return self.l1(x)


def dataset():
    inputs = tf.range(10.0)[:, None]
    return tf.data.Dataset.from_tensors({"x": inputs, "y": inputs * 5.0 + tf.range(5.0)[None, :]}).repeat()


def estimator(directory, optimizer="oldest_adam", kind=milepost.Checkpoint, steps=None):
    def model_fn(features, labels, mode):
        net, opt = Net(), OPTIMIZERS[optimizer]()
        checkpoint = kind(step=tf.compat.v1.train.get_global_step(), optimizer=opt, net=net)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(features["x"]) - features["y"]) ** 2)
        variables = net.trainable_variables
        update = opt.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return tf.estimator.EstimatorSpec(
            mode,
            loss=loss,
            train_op=tf.group(update, checkpoint.step.assign_add(1)),
            scaffold=tf.compat.v1.train.Scaffold(saver=checkpoint),
        )

    config = tf.estimator.RunConfig(save_checkpoints_steps=steps) if steps else None
    return tf.estimator.Estimator(model_fn, str(directory), config=config)


def trained(kind, optimizer="oldest_adam"):
    optimizer, net = OPTIMIZERS[optimizer](), Net()
    return kind(step=tf.Variable(0, dtype=tf.int64), optimizer=optimizer, net=net)


class TestGuide:
    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, tmp_path_factory):
        directory = tmp_path_factory.mktemp("guide")
        command = [sys.executable, str(GUIDE), str(directory)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr[-4000:]
        return directory / "tf_estimator_example", run.stdout

    def test_step_is_10(self, run):
        assert run[1].split() == ["10"]

    def test_the_checkpoint_is_object_based_under_the_estimators_name(self, run):
        latest = milepost.latest_checkpoint(run[0])
        assert os.path.basename(latest) == "model.ckpt-10"
        names = [name for name, _ in milepost.list_variables(latest)]
        assert "net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE" in names

    @pytest.mark.parametrize("kind", [milepost.Checkpoint, tf.train.Checkpoint])
    def test_both_libraries_load_it_outside_the_estimator(self, run, kind):
        checkpoint = trained(kind, "adam")
        checkpoint.read(tf.train.latest_checkpoint(str(run[0]))).assert_existing_objects_matched()
        assert int(checkpoint.step) == 10


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_as_with_tensorflows_own_checkpoint(tmp_path, optimizer):
    weights = {}
    for kind in (milepost.Checkpoint, tf.train.Checkpoint):
        directory = tmp_path / kind.__module__.split(".")[0]
        for _ in range(2):  # the second restores what the first has saved
            estimator(directory, optimizer, kind).train(dataset, steps=5)
        reader = milepost.load_checkpoint(directory)
        assert reader.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE") == 10
        weights[kind] = reader.get_tensor("net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE")
    np.testing.assert_allclose(weights[milepost.Checkpoint], weights[tf.train.Checkpoint], rtol=1e-6)


def test_an_estimator_of_one_library_goes_on_from_the_other(tmp_path):
    estimator(tmp_path / "a", kind=tf.train.Checkpoint).train(dataset, steps=3)
    estimator(tmp_path / "a").train(dataset, steps=3)
    estimator(tmp_path / "b").train(dataset, steps=6)
    values = [
        milepost.load_checkpoint(tmp_path / name).get_tensor("net/l1/bias/.ATTRIBUTES/VARIABLE_VALUE") for name in "ab"
    ]
    np.testing.assert_allclose(*values, rtol=1e-6)


def test_the_newest_five_are_kept_over_restarts(tmp_path):
    for _ in range(2):
        estimator(tmp_path, steps=2).train(dataset, steps=8)
    kept = milepost.get_checkpoint_state(tmp_path).all_model_checkpoint_paths
    assert [os.path.basename(path) for path in kept] == [f"model.ckpt-{step}" for step in (8, 10, 12, 14, 16)]
    assert sorted(each.stem for each in tmp_path.glob("*.index")) == sorted(map(os.path.basename, kept))
    assert len(list(tmp_path.glob("*.meta"))) == 5


def test_evaluation_uses_the_saved_values(tmp_path):
    model = estimator(tmp_path)
    model.train(dataset, steps=50)
    result = model.evaluate(dataset, steps=1)
    checkpoint = trained(milepost.Checkpoint)
    checkpoint.restore(milepost.latest_checkpoint(tmp_path))
    batch = next(iter(dataset()))
    loss = float(tf.reduce_mean((checkpoint.net(batch["x"]) - batch["y"]) ** 2))
    assert result["global_step"] == 50
    assert result["loss"] == pytest.approx(loss, rel=1e-5)


def test_an_estimator_that_was_killed_goes_on(tmp_path):
    run = subprocess.run([sys.executable, "-m", __name__, str(tmp_path / "killed")], capture_output=True, check=False)
    assert run.returncode == -signal.SIGKILL
    before = os.path.basename(milepost.latest_checkpoint(tmp_path / "killed"))
    assert before == "model.ckpt-4"
    estimator(tmp_path / "killed").train(dataset, max_steps=10)
    estimator(tmp_path / "whole").train(dataset, max_steps=10)
    values = [
        milepost.load_checkpoint(tmp_path / name).get_tensor("net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE")
        for name in ("killed", "whole")
    ]
    np.testing.assert_allclose(*values, rtol=1e-6)


class TestFilesByName:
    """What an Estimator saves that was not given a checkpoint."""

    @pytest.fixture(params=UPDATING)
    def trained_by_name(self, request, tmp_path):
        def model_fn(features, labels, mode):
            net, opt = Net(), OPTIMIZERS[request.param]()
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((net(features["x"]) - features["y"]) ** 2)
            variables = net.trainable_variables
            update = opt.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            count = tf.compat.v1.train.get_global_step().assign_add(1)
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.group(update, count))

        model = tf.estimator.Estimator(model_fn, str(tmp_path))
        model.train(dataset, steps=3)
        tf.keras.backend.clear_session()  # names count anew
        step = tf.Variable(0, dtype=tf.int64, name="global_step")
        return model, milepost.Checkpoint(step=step, net=Net(), optimizer=OPTIMIZERS[request.param]())

    @pytest.mark.parametrize("deferred", [True, False], ids=["before", "after"])
    def test_training_goes_on_outside_of_it_restored_before_or_after_the_first_step(self, trained_by_name, deferred):
        model, checkpoint = trained_by_name

        def step():
            batch = next(iter(dataset()))
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((checkpoint.net(batch["x"]) - batch["y"]) ** 2)
            variables = checkpoint.net.trainable_variables
            checkpoint.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        if not deferred:
            step()
        status = checkpoint.restore(milepost.latest_checkpoint(model.model_dir))
        step()
        status.assert_consumed()
        assert not status.report().unexpected
        assert int(checkpoint.step) == 3
        model.train(dataset, steps=1)
        kernel = milepost.load_variable(model.model_dir, "net/dense/kernel")
        np.testing.assert_allclose(checkpoint.net.l1.kernel, kernel, rtol=1e-5)


def _train_and_die(directory):
    class Die(tf.estimator.SessionRunHook):
        def after_run(self, context, values):
            if int(context.session.run(tf.compat.v1.train.get_global_step())) >= 6:
                os.kill(os.getpid(), signal.SIGKILL)

    estimator(directory, steps=4).train(dataset, hooks=[Die()], steps=20)


if __name__ == "__main__":
    _train_and_die(sys.argv[1])
