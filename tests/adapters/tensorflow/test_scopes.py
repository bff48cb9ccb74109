"""Slot variables of variables that are made in a scope which watches what is made."""

import pytest

from milepost import Checkpoint
from tests.adapters.tensorflow.frameworks import CHECKPOINTS, keras, tf

writers = pytest.mark.parametrize("writer", CHECKPOINTS.values(), ids=CHECKPOINTS)


def program(kind):
    def make():
        return tf.compat.v1.get_variable("v", shape=[1], initializer=tf.zeros_initializer(), use_resource=True)

    template = tf.compat.v1.make_template("s", make)
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    return template, optimizer, kind(t=template, o=optimizer)


@writers
def test_a_template_holds_its_variables_and_none_of_their_slots(writer, tmp_path):
    template, optimizer, checkpoint = program(writer)
    v = template()
    optimizer.minimize(lambda: v * 2.0)
    saved = optimizer.get_slot(v, "m").numpy()
    path = checkpoint.save(str(tmp_path / "ckpt"))
    template, optimizer, checkpoint = program(Checkpoint)
    status = checkpoint.restore(path)
    v = template()
    assert list(template._trackable_children()) == ["v"]
    optimizer._create_slots([v])
    assert optimizer.get_slot(v, "m").numpy() == saved != 0
    status.assert_existing_objects_matched()
    again = checkpoint.save(str(tmp_path / "ckpt"))
    assert [name for name, _ in tf.train.list_variables(again) if "SLOT" in name] == [
        name for name, _ in tf.train.list_variables(path) if "SLOT" in name
    ]


@writers
def test_slots_that_were_not_made_before_a_save_are_carried_over(writer, tmp_path):
    template, optimizer, checkpoint = program(writer)
    v = template()
    optimizer.minimize(lambda: v * 2.0)
    path = checkpoint.save(str(tmp_path / "ckpt"))
    template, optimizer, checkpoint = program(Checkpoint)
    checkpoint.restore(path)
    template()
    again = checkpoint.save(str(tmp_path / "ckpt"))
    assert dict(tf.train.list_variables(again)) == dict(tf.train.list_variables(path))


def test_a_scope_that_watches_variables_sees_only_those_the_program_makes(tmp_path):
    optimizer, module = keras.optimizers.legacy.Adam(0.1), tf.Module()
    module.v = tf.Variable([1.0])
    optimizer.apply_gradients([(tf.constant([1.0]), module.v)])
    path = Checkpoint(m=module, o=optimizer).write(tmp_path / "ckpt")
    expected = optimizer.get_slot(module.v, "m").numpy()

    optimizer, module = keras.optimizers.legacy.Adam(0.1), tf.Module()
    Checkpoint(m=module, o=optimizer).read(path)
    made = []

    def creator(following, **arguments):
        made.append(following(**arguments))
        return made[-1]

    with tf.variable_creator_scope(creator):
        module.v = tf.Variable([0.0])
    assert len(made) == 1
    assert module.v.numpy() == made[0].numpy()
    assert optimizer.add_slot(module.v, "m").numpy() == expected
