"""Saves inside a ``tf.function``."""

import pytest

import milepost
from tests.adapters.tensorflow.frameworks import tf

KEY = "v/.ATTRIBUTES/VARIABLE_VALUE"


def test_write_saves_in_every_run_what_the_variables_hold_there(tmp_path):
    v = tf.Variable(1.0)
    checkpoint = milepost.Checkpoint(v=v)

    @tf.function
    def step(path):
        v.assign_add(1.0)
        written = checkpoint.write(path)
        v.assign_add(10.0)
        return written

    for number, expected in enumerate((2.0, 13.0, 24.0)):
        path = str(tmp_path / f"ckpt-{number}")
        assert step(tf.constant(path)).numpy().decode() == path
        assert milepost.load_variable(path, KEY) == expected
    assert step.experimental_get_tracing_count() == 1


def test_write_to_a_path_that_is_text_saves_in_every_run(tmp_path):
    v = tf.Variable(1.0)
    checkpoint = milepost.Checkpoint(v=v)

    @tf.function
    def step():
        v.assign_add(1.0)
        checkpoint.write(tmp_path / "ckpt")

    for _ in range(3):
        step()
    assert milepost.load_variable(tmp_path / "ckpt", KEY) == 4


@pytest.mark.parametrize("call", ["checkpoint", "manager", "weights"])
def test_a_numbered_save_in_a_traced_function_is_refused_and_uses_no_number(call, tmp_path):
    v = tf.Variable(1.0)
    checkpoint = milepost.Checkpoint(v=v)
    manager = milepost.CheckpointManager(checkpoint, tmp_path / "run", max_to_keep=1)
    save = {
        "checkpoint": lambda: checkpoint.save(tmp_path / "ckpt"),
        "manager": manager.save,
        "weights": lambda: milepost.save_weights(checkpoint, tmp_path / "ckpt"),
    }[call]
    with pytest.raises(NotImplementedError, match=r"tf\.function"):
        tf.function(save, autograph=False)()
    assert checkpoint.save_counter == 0
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_write_in_a_function_that_a_session_runs_writes_what_the_session_has_then(tmp_path):
    path = str(tmp_path / "ckpt")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        v = tf.compat.v1.get_variable("v", initializer=1.0, use_resource=True)
        checkpoint = milepost.Checkpoint(v=v, plain=milepost.Variable(2.0))
        write = tf.function(lambda: checkpoint.write(path), autograph=False)()
        session.run(v.initializer)
        for expected in (1.0, 3.0):
            session.run(v.assign(expected))
            assert session.run(write) == path.encode()
            assert milepost.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE") == expected
    assert milepost.load_variable(path, "plain/.ATTRIBUTES/VARIABLE_VALUE") == 2.0


def test_reference_variables_are_refused_in_a_function(tmp_path):
    with tf.Graph().as_default():
        checkpoint = milepost.Checkpoint(v=tf.compat.v1.get_variable("v", initializer=1.0, use_resource=False))
        with pytest.raises(milepost.UnsupportedError, match="resource"):
            tf.function(lambda: checkpoint.write(str(tmp_path / "ckpt")), autograph=False)()


def test_a_managers_save_in_a_function_is_refused_before_it_looks_at_the_step(tmp_path):
    step = tf.Variable(3)
    manager = milepost.CheckpointManager(
        milepost.Checkpoint(step=step), tmp_path, 3, step_counter=step, checkpoint_interval=2
    )
    with pytest.raises(milepost.UnsupportedError, match="inside a tf"):
        tf.function(manager.save, autograph=False)()


def test_autograph_leaves_a_save_as_it_is(tmp_path, caplog):
    checkpoint = milepost.Checkpoint(v=tf.Variable(1.0))

    @tf.function
    def write():
        checkpoint.write(str(tmp_path / "ckpt"))

    write()
    assert "AutoGraph" not in caplog.text


@pytest.mark.parametrize("autograph", [True, False])
@pytest.mark.parametrize("call", ["read", "restore", "manager", "weights"])
def test_a_restore_in_a_traced_function_is_refused(call, autograph, tmp_path):
    v = tf.Variable(1.0)
    checkpoint = milepost.Checkpoint(v=v)
    path = checkpoint.save(tmp_path / "ckpt")
    manager = milepost.CheckpointManager(checkpoint, tmp_path, max_to_keep=1)
    v.assign(2.0)
    restore = {
        "read": lambda: checkpoint.read(path),
        "restore": lambda: checkpoint.restore(path),
        "manager": manager.restore_or_initialize,
        "weights": lambda: milepost.load_weights(checkpoint, path),
    }[call]

    @tf.function(autograph=autograph)
    def function():
        restore()

    with pytest.raises(milepost.UnsupportedError, match=r"a restore inside a tf\.function"):
        function()
    assert v.numpy() == 2.0


@pytest.mark.parametrize("place", ["condition", "loop"])
def test_a_save_that_autograph_translates_is_refused_with_milepost_error(place, tmp_path):
    v = tf.Variable(1.0)
    checkpoint = milepost.Checkpoint(v=v)
    manager = milepost.CheckpointManager(checkpoint, tmp_path / "run", max_to_keep=1)

    @tf.function
    def in_condition():
        if v > 0.0:
            checkpoint.save(tmp_path / "ckpt")

    @tf.function
    def in_loop():
        for _ in tf.range(2):
            manager.save()

    with pytest.raises(milepost.UnsupportedError, match=r"a save inside a tf\.function"):
        {"condition": in_condition, "loop": in_loop}[place]()


def test_write_in_conditions_and_loops_saves_when_it_is_reached(tmp_path):
    v = tf.Variable(0)
    checkpoint = milepost.Checkpoint(v=v)

    @tf.function
    def function():
        for step in tf.range(10):
            v.assign_add(1)
            if step % 5 == 0:
                checkpoint.write(str(tmp_path / "ckpt"))

    function()
    assert milepost.load_variable(tmp_path / "ckpt", KEY) == 6
