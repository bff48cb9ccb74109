"""The guide in NumPy: what it prints and writes, and that a killed training ends where an undisturbed one does."""

import os
import pathlib
import random
import subprocess
import sys
import time

import numpy as np
import pytest

import milepost
from milepost.tools import demo, guide_numpy

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "guide_numpy.py"
SLOT = "net/l1/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide")
    command = [sys.executable, str(EXAMPLE), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return directory, done.stdout


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    _, losses = demo.run_training(tmp_path_factory.mktemp("undisturbed"))
    assert list(losses) == list(range(1, demo.STEPS + 1))
    return losses


def test_it_prints_the_guides_lines(ran):
    lines = ran[1].splitlines()
    assert lines[0] == "Initializing from scratch."
    assert lines[1] == "Saved checkpoint for step 10: ./tf_ckpts/ckpt-1"
    assert "Restored from ./tf_ckpts/ckpt-5" in lines
    assert "Saved checkpoint for step 100: ./tf_ckpts/ckpt-10" in lines
    assert "['./tf_ckpts/ckpt-8', './tf_ckpts/ckpt-9', './tf_ckpts/ckpt-10']" in lines
    assert "ListWrapper([])" in lines


def test_the_loss_goes_down(ran):
    losses = [float(line.split()[1]) for line in ran[1].splitlines() if line.startswith("loss ")]
    assert losses[-1] < losses[0] / 10


def test_the_three_newest_checkpoints_are_kept(ran):
    names = [f"ckpt-{n}{end}" for n in (10, 8, 9) for end in (".data-00000-of-00001", ".index")]
    assert sorted(os.listdir(ran[0] / "tf_ckpts")) == ["checkpoint", *names]


def test_keys_are_the_guides(ran):
    keys = [key for key, _ in milepost.list_variables(ran[0] / "tf_ckpts")]
    assert SLOT in keys
    assert "net/l1/bias/.ATTRIBUTES/VARIABLE_VALUE" in keys
    assert "save_counter/.ATTRIBUTES/VARIABLE_VALUE" in keys


def test_tensorflow_reads_it(ran):
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    prefix = tf.train.latest_checkpoint(str(ran[0] / "tf_ckpts"))
    assert prefix.endswith("ckpt-10")
    reader = tf.train.load_checkpoint(prefix)
    np.testing.assert_array_equal(reader.get_tensor(SLOT), milepost.load_variable(prefix, SLOT))
    bias = tf.Variable(tf.zeros([5]))
    layer = tf.train.Checkpoint(bias=bias)
    root = tf.train.Checkpoint(net=tf.train.Checkpoint(l1=layer))
    root.restore(prefix).assert_existing_objects_matched()
    kernel = tf.Variable(tf.zeros([1, 5]))
    layer.kernel = kernel
    for name, variable in (("bias", bias), ("kernel", kernel)):
        saved = milepost.load_variable(prefix, f"net/l1/{name}/.ATTRIBUTES/VARIABLE_VALUE")
        np.testing.assert_array_equal(variable, saved)


def test_a_training_that_is_killed_and_resumed_has_the_same_losses_bit_for_bit(tmp_path, undisturbed):
    interrupted = {}
    for kill_at in (13, 37, 38, 50, 73, None):
        _, losses = demo.run_training(tmp_path, kill_at)
        assert all(undisturbed[step] == loss for step, loss in losses.items()), "also where steps are repeated"
        interrupted.update(losses)
    assert interrupted == undisturbed


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_a_random_moment_it_resumes(tmp_path, undisturbed, seed):
    """Also in the middle of a save: every one of the training's steps saves here."""
    program = (
        "import sys; from milepost.tools import demo, guide_numpy\n"
        "checkpoint, manager = guide_numpy.create(sys.argv[1])\n"
        "manager.restore_or_initialize()\n"
        "print(int(checkpoint.step), flush=True)\n"
        "while int(checkpoint.step) < demo.STEPS:\n"
        "    loss = guide_numpy.train_step(checkpoint.net, next(checkpoint.iterator), checkpoint.optimizer)\n"
        "    checkpoint.step.assign_add(1)\n"
        "    print(int(checkpoint.step), loss.hex(), flush=True)\n"
        "    manager.save()\n"
    )
    luck = random.Random(seed)
    losses, starts = {}, []
    for kill in (*[True] * 5, False):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            starts.append(int(process.stdout.readline()))
            if kill:
                time.sleep(luck.uniform(0, 0.15))
                process.kill()
            for line in process.stdout:
                if line.endswith("\n"):
                    step, loss = line.split()
                    losses[int(step)] = loss
    assert starts == sorted(starts)
    assert losses == undisturbed


def test_saved_again_right_after_a_restore_it_resumes_the_same(tmp_path, undisturbed):
    demo.run_training(tmp_path, 33)
    checkpoint, manager = guide_numpy.create(str(tmp_path))
    assert manager.restore_or_initialize()
    manager.save()
    start, losses = demo.run_training(tmp_path)
    assert start == int(checkpoint.step)
    assert losses == {step: undisturbed[step] for step in range(start + 1, demo.STEPS + 1)}


def test_the_demo_ends_well(tmp_path, capsys):
    assert demo.run(str(tmp_path)) == 0
    assert "100 of 100 are equal bit for bit" in capsys.readouterr().out
    assert (tmp_path / "graph.svg").exists()
    with pytest.raises(FileExistsError, match="earlier demo"):
        demo.run(str(tmp_path))
