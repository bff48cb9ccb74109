"""Variables that are spread over several devices."""

import json
import textwrap

import pytest

from tests import programs
from tests.adapters.tensorflow import frameworks

SCRIPT = textwrap.dedent(
    """
    import json, sys
    import tensorflow as tf
    import {keras} as keras
    import milepost

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    directory, found = sys.argv[1], dict()
    writer = dict(milepost=milepost, tensorflow=tf.train)[sys.argv[2]].Checkpoint
    reader = dict(milepost=milepost, tensorflow=tf.train)[sys.argv[3]].Checkpoint
    each = tf.VariableSynchronization.ON_READ
    total = tf.VariableAggregation.SUM

    def made(value):
        with strategy.scope():
            return dict(
                mirrored=tf.Variable(value), summed=tf.Variable(value, synchronization=each, aggregation=total)
            )

    saved = made(4.0)
    path = writer(**saved).write(directory + "/variables")
    live = made(0.0)
    reader(**live).read(path).assert_consumed()
    found["local"] = [[float(v) for v in strategy.experimental_local_results(live[name])] for name in sorted(live)]
    plain = dict(mirrored=tf.Variable(0.0), summed=tf.Variable(0.0))
    reader(**plain).read(path).assert_consumed()
    found["plain"] = [float(plain[name]) for name in sorted(plain)]

    def net():
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
            model.compile(keras.optimizers.Adam(0.1), "mse")
        return model

    def fit(model):
        data = tf.data.Dataset.from_tensor_slices((tf.ones([8, 2]), tf.ones([8, 1]))).batch(4)
        return model.fit(data, epochs=2, verbose=0).history["loss"]

    model = net()
    fit(model)
    path = writer(model=model).write(directory + "/model")
    expected = fit(model)
    model = net()
    reader(model=model).read(path)
    found["fit"] = [fit(model), expected]
    print(json.dumps(found))
    """
)


@pytest.mark.parametrize(
    ("writer", "reader"), [("milepost", "milepost"), ("milepost", "tensorflow"), ("tensorflow", "milepost")]
)
def test_mirrored_variables_are_exchanged_and_training_goes_on(tmp_path, writer, reader):
    script = SCRIPT.format(keras=frameworks.keras.__name__)
    done = programs.run(
        ["-c", script, tmp_path, writer, reader],
        imports=programs.imports("tensorflow", frameworks.keras.__name__),
        environment=programs.environment(),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["local"] == [[4, 4], [4, 4]]
    assert found["plain"] == [4, 8]  # the second is the sum over both replicas
    assert found["fit"][0] == found["fit"][1]
