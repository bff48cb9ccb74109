"""A training of a hundred steps that can be killed: `python -m tests.interop.training KIND DIRECTORY`.

Prints the step that it starts from and each step's loss, exactly. What it draws at random it takes from ``--seed``, so that
a resumed process that is given another seed can only go on as the first one did if everything came from the checkpoint.
"""

import argparse
import json
import os
import signal
import sys

import numpy as np

import milepost

STEPS = 100
_RANDOM = np.random.default_rng(7)
INPUTS = _RANDOM.normal(size=(22, 3)).astype(np.float32)
LABELS = (INPUTS @ _RANDOM.normal(size=(3, 5)) + np.abs(INPUTS[:, :1])).astype(np.float32)


class ShuffledBatches(milepost.PythonState):
    """Goes through the data for ever, in another order each time."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.order = []

    def __next__(self):
        if not self.order:
            self.order = self.random.permutation(len(INPUTS)).tolist()
        chosen, self.order = self.order[:4], self.order[4:]
        return INPUTS[chosen], LABELS[chosen]

    def serialize(self):
        return json.dumps([self.order, self.random.bit_generator.state])

    def deserialize(self, string_value):
        self.order, self.random.bit_generator.state = json.loads(string_value)


def _net(keras, dropout):
    class Net(keras.Model):
        """Makes all its variables in the first call."""

        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(16, activation="relu")
            self.normalize = keras.layers.BatchNormalization(momentum=0.9)
            self.drop = dropout
            self.out = keras.layers.Dense(5)

        def call(self, x, training=False):
            x = self.normalize(self.hidden(x), training=training)
            return self.out(self.drop(x, training=training) if self.drop else x)

    return Net()


def _optimizer(keras):
    return keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9))


def keras_trainer(seed):
    """Keras 3 on any backend, by its own training step."""
    import keras

    keras.utils.set_random_seed(seed)
    # On torch, Keras draws dropout from torch's global generator, which is no object of the program's.
    draws_from_seeds = keras.backend.backend() != "torch"
    net = _net(keras, keras.layers.Dropout(0.2, seed=seed) if draws_from_seeds else None)
    optimizer = _optimizer(keras)
    net.compile(optimizer=optimizer, loss="mean_squared_error")
    step = keras.Variable(0, trainable=False, dtype="int32")
    iterator = ShuffledBatches(seed)

    def train_step():
        net.reset_metrics()
        loss = net.train_on_batch(*next(iterator))
        step.assign_add(1)
        return loss

    return milepost.Checkpoint(step=step, optimizer=optimizer, net=net, iterator=iterator), train_step


def tf_function_trainer(seed):
    """Keras 3 with tf.data and a `tf.Variable`, in a `tf.function`."""
    import keras

    return _in_tf_function(keras, seed, keras.layers.Dropout(0.2, seed=seed))


def tf_keras_trainer(seed):
    """The same in Keras 2, without dropout: Keras 2 keeps the generators of its layers out of checkpoints."""
    import tf_keras

    return _in_tf_function(tf_keras, seed, None)


def _in_tf_function(keras, seed, dropout):
    import tensorflow as tf

    iterator = _tf_data(tf)
    keras.utils.set_random_seed(seed)
    net = _net(keras, dropout)
    optimizer = _optimizer(keras)
    step = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def update(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=True) - y) ** 2)
        variables = net.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        step.assign_add(1)
        return loss

    checkpoint = milepost.Checkpoint(step=step, optimizer=optimizer, net=net, iterator=iterator)
    return checkpoint, lambda: update(*next(iterator))


def module_trainer(seed):
    """`tf.Module` alone: a layer that makes its variables in the first call, momentum, and noise of a generator."""
    import tensorflow as tf

    noise = tf.random.Generator.from_seed(seed)
    initial = tf.random.Generator.from_seed(seed)  # another one: a resumed training makes its variables later

    class Dense(tf.Module):
        def __init__(self, units):
            super().__init__()
            self.units = units

        def __call__(self, x):
            if not hasattr(self, "kernel"):
                self.kernel = tf.Variable(initial.normal([x.shape[-1], self.units]))
                self.bias = tf.Variable(tf.zeros([self.units]))
            return x @ self.kernel + self.bias

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.layers = [Dense(16), Dense(5)]

        def __call__(self, x):
            return self.layers[1](tf.nn.tanh(self.layers[0](x)))

    class Momentum(tf.Module):
        def __init__(self):
            super().__init__()
            self.momenta = []

        def apply(self, gradients, variables):
            for variable in variables[len(self.momenta) :]:
                self.momenta.append(tf.Variable(tf.zeros_like(variable)))
            for momentum, gradient, variable in zip(self.momenta, gradients, variables, strict=True):
                momentum.assign(0.9 * momentum + gradient)
                variable.assign_sub(0.01 * momentum)

    net, optimizer, step, iterator = Net(), Momentum(), tf.Variable(0), _tf_data(tf)

    def train_step():
        x, y = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x + 0.1 * noise.normal(x.shape)) - y) ** 2)
        variables = net.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        step.assign_add(1)
        return loss

    parts = {"step": step, "optimizer": optimizer, "net": net, "iterator": iterator, "noise": noise}
    return milepost.Checkpoint(**parts), train_step


def _tf_data(tf):
    tf.random.set_seed(5)  # the seed of later epochs is part of what the pipeline is, not of where it stands
    return iter(tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).shuffle(22, seed=5).repeat().batch(4))


TRAINERS = {
    "keras": keras_trainer,
    "tf_function": tf_function_trainer,
    "tf_keras": tf_keras_trainer,
    "module": module_trainer,
}


def _kill_at_rename(count):
    """Kills this process just before it renames a file for the ``count``-th time from now on."""
    left = [count]

    def watch(event, arguments):
        if event == "os.rename":
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=TRAINERS)
    parser.add_argument("directory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=10, help="save every so many steps")
    parser.add_argument("--kill-in-save", type=int, default=0, help="die in the save of this step")
    parser.add_argument("--rename", type=int, default=1, help="die before this rename of that save")
    parser.add_argument("--save-and-die", action="store_true", help="save right after restoring, and die")
    options = parser.parse_args()
    checkpoint, train_step = TRAINERS[options.kind](options.seed)
    manager = milepost.CheckpointManager(checkpoint, options.directory, max_to_keep=3)
    manager.restore_or_initialize()
    print(int(checkpoint.step), flush=True)
    if options.save_and_die:
        manager.save()
        os.kill(os.getpid(), signal.SIGKILL)
    while int(checkpoint.step) < STEPS:
        loss = float(train_step())
        step = int(checkpoint.step)
        print(step, loss.hex(), flush=True)
        if step == options.kill_in_save:
            _kill_at_rename(options.rename)
        if step % options.every == 0:
            manager.save()


if __name__ == "__main__":
    main()
