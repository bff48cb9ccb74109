"""The guide's loop, killed in the middle and resumed in a fresh process: the losses are those of a run that was not."""

import json
import signal
import textwrap

import pytest

from tests import programs
from tests.adapters.tensorflow import frameworks

SCRIPT = textwrap.dedent(
    """
    import json, os, signal, sys
    import tensorflow as tf
    import {keras} as keras
    import milepost

    directory, steps, kill_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.l1 = keras.layers.Dense(5)

        def call(self, x):
            return self.l1(x)

    keras.utils.set_random_seed(1)
    inputs = tf.range(10.)[:, None]
    labels = inputs * 5. + tf.range(5.)[None, :]
    dataset = tf.data.Dataset.from_tensor_slices(dict(x=inputs, y=labels)).shuffle(10, seed=2).repeat().batch(2)
    net, optimizer, iterator = Net(), keras.optimizers.Adam(0.1), iter(dataset)
    noise = tf.random.Generator.from_seed(3)
    checkpoint = milepost.Checkpoint(
        step=tf.Variable(0), optimizer=optimizer, net=net, iterator=iterator, noise=noise
    )
    manager = milepost.CheckpointManager(checkpoint, directory, max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint)

    def train_step(example):
        with tf.GradientTape() as tape:
            output = net(example["x"] + noise.normal([2, 1]))
            loss = tf.reduce_mean(tf.abs(output - example["y"]))
        variables = net.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    if {function}:
        train_step = tf.function(train_step)

    while int(checkpoint.step) < steps:
        loss = train_step(next(iterator))
        checkpoint.step.assign_add(1)
        print(json.dumps([int(checkpoint.step), float(loss)]), flush=True)
        if int(checkpoint.step) % 5 == 0:
            manager.save()
        if int(checkpoint.step) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    """
)


def run(script, directory, steps, kill_at=-1, hash_seed=1):
    done = programs.run(
        ["-c", script, directory, str(steps), str(kill_at)],
        imports=programs.imports("tensorflow", frameworks.keras.__name__),
        environment=programs.environment(hash_seed=hash_seed),
    )
    assert done.returncode == (-signal.SIGKILL if kill_at > 0 else 0), done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("function", [False, True], ids=["eager", "function"])
def test_training_killed_twice_has_the_losses_of_training_without_interruption(tmp_path, function):
    script = SCRIPT.format(keras=frameworks.keras.__name__, function=function)
    expected = run(script, tmp_path / "whole", 20)
    directory = tmp_path / "killed"
    first = run(script, directory, 20, kill_at=7)
    second = run(script, directory, 20, kill_at=12)
    third = run(script, directory, 20, hash_seed=2)
    assert (min(second), min(third)) == (6, 11)
    for losses in (first, second, third):
        assert losses == {step: expected[step] for step in losses}
