"""Writes the checkpoints in this directory with TensorFlow 1.15; see PROVENANCE.md.

python generate.py
"""

import os
import shutil
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))

# What an old Saver can write in either version.
NUMBERS = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool"]
NUMBERS += ["complex64", "complex128", "qint8", "quint8", "qint32"]


def values():
    """The tensors of the name-based checkpoints by name; quantised ones as plain integers."""
    found = {}
    for number, name in enumerate(NUMBERS):
        base = name[1:] if name[0] == "q" else name
        array = (np.arange(6).reshape(2, 3) * (number + 1) % 7).astype(base)
        if base.startswith("complex"):
            array = array - 2j * array
        found["numbers/" + name] = array.astype(base)
    found["scalar"] = np.array(-2.5, np.float32)
    found["empty"] = np.zeros((0, 3), np.float32)
    found["text"] = np.array([b"", b"a\x00b", "caf\u00e9".encode(), b"x" * 200], object)
    found["step"] = np.array(1 << 40, np.int64)
    return found


def partitioned():
    """Variables that are saved in pieces, and along which axis into how many."""
    return {
        "rows": (np.arange(28, dtype=np.float32).reshape(7, 4), 0, 3),
        "columns": (np.arange(20, dtype=np.float64).reshape(2, 10), 1, 4),
        "half": (np.arange(9, dtype=np.float16), 0, 2),
    }


def main():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    assert tf.__version__.startswith("1.15."), tf.__version__
    versions = {"v1": tf.train.SaverDef.V1, "v2": tf.train.SaverDef.V2}
    for version, write_version in versions.items():
        save(tf, os.path.join(version, "ckpt"), write_version, sharded=False)
        save(tf, os.path.join(version + "_sharded", "ckpt"), write_version, sharded=True)
    estimator(tf)


def save(tf, path, write_version, sharded):
    """Plain and partitioned variables, each second one on another device."""
    path = fresh(path)
    with tf.Graph().as_default():
        saved = {}
        for number, (name, value) in enumerate(sorted(values().items())):
            with tf.device(f"/cpu:{number % 2}"):
                saved[name] = variable(tf, name, value)
        for number, (name, (value, axis, pieces)) in enumerate(sorted(partitioned().items())):
            with tf.device(f"/cpu:{number % 2}"):
                saved[name] = tf.get_variable(
                    name,
                    value.shape,
                    value.dtype,
                    part_of(tf, value),
                    partitioner=tf.fixed_size_partitioner(pieces, axis),
                    use_resource=False,
                )
        saver = tf.train.Saver(saved, sharded=sharded, write_version=write_version)
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
            session.run(tf.global_variables_initializer())
            saver.save(session, path, write_meta_graph=False, write_state=True)
    relative_state(os.path.dirname(path))


def part_of(tf, value):
    """Initialises each part of a partitioned variable with its part of the value."""

    def initial(shape, dtype, partition_info):
        index = tuple(slice(start, start + n) for start, n in zip(partition_info.var_offset, shape))  # noqa: B905 - 3.7
        return tf.constant(value[index], dtype)

    return initial


def variable(tf, name, value):
    if name.startswith("numbers/q"):
        dtype = tf.as_dtype(name[len("numbers/") :])
        initial = tf.cast(tf.constant(value, tf.int32), dtype)
    else:
        dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
        initial = tf.constant(value, dtype)
    return tf.Variable(initial, name=name, use_resource=False, dtype=dtype)


def estimator(tf):
    """A model directory, without the graph and the events."""
    directory = os.path.dirname(fresh(os.path.join("estimator", "model.ckpt")))
    columns = [tf.feature_column.numeric_column("x")]
    config = tf.estimator.RunConfig(model_dir=directory, tf_random_seed=1, save_checkpoints_steps=2)
    model = tf.estimator.DNNRegressor([4], columns, optimizer="Adam", config=config)
    x = np.arange(8, dtype=np.float32)
    model.train(lambda: tf.data.Dataset.from_tensors(({"x": x}, 2 * x + 1)).repeat(4))
    reader = tf.train.load_checkpoint(directory)
    np.savez(
        os.path.join(HERE, "estimator.npz"),
        **{name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()},
    )
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif name.endswith(".meta") or name == "graph.pbtxt" or name.startswith("events"):
            os.remove(path)
    relative_state(directory)


def fresh(path):
    directory = os.path.join(HERE, os.path.dirname(path))
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    return os.path.join(HERE, path)


def relative_state(directory):
    """No path of the machine that ran this goes into the repository."""
    path = os.path.join(directory, "checkpoint")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace(directory + os.sep, ""))


if __name__ == "__main__":
    sys.exit(main())
