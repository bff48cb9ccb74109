"""Iterators, random generators, tables and objects of users' own classes, exchanged with `tf.train.Checkpoint`."""

import pytest

import milepost
from milepost import (
    Checkpoint,
    CheckpointOptions,
    UnmatchedError,
    UnrestoredWarning,
    UnsupportedError,
    UntrackableError,
)
from tests.adapters.tensorflow.frameworks import CHECKPOINTS, exchanged, tf

lookup = tf.lookup.experimental


def dataset():
    return tf.data.Dataset.range(100).shuffle(20, seed=3, reshuffle_each_iteration=True).batch(3).repeat().prefetch(2)


@exchanged
@pytest.mark.parametrize("taken", [0, 1, 40])
def test_an_iterator_continues_at_the_next_element(tmp_path, writer, reader, taken):
    tf.random.set_seed(5)
    iterator = iter(dataset())
    for _ in range(taken):
        next(iterator)
    path = writer(i=iterator).save(str(tmp_path / "ckpt"))
    expected = [next(iterator).numpy().tolist() for _ in range(50)]
    live = iter(dataset())
    next(live)
    reader(i=live).restore(path).assert_consumed()
    assert [next(live).numpy().tolist() for _ in range(50)] == expected


@exchanged
def test_an_iterator_of_arrays_continues_at_the_next_element(tmp_path, writer, reader):
    if not hasattr(tf.data.Dataset.range(1).as_numpy_iterator(), "_serialize_to_tensors"):
        pytest.skip("this TensorFlow does not save iterators of arrays")
    iterator = tf.data.Dataset.range(10).as_numpy_iterator()
    next(iterator)
    path = writer(i=iterator).write(str(tmp_path / "ckpt"))
    live = tf.data.Dataset.range(10).as_numpy_iterator()
    reader(i=live).read(path).assert_consumed()
    assert next(live) == 1


def test_an_iterator_attached_late_continues_too(tmp_path):
    iterator = iter(tf.data.Dataset.range(10))
    next(iterator)
    path = Checkpoint(m=Checkpoint(i=iterator)).write(tmp_path / "ckpt")
    live = Checkpoint(m=Checkpoint())
    status = live.read(path)
    live.m.i = iter(tf.data.Dataset.range(10))
    status.assert_consumed()
    assert next(live.m.i).numpy() == 1


def iterator_that_cannot_be_saved():
    return iter(tf.data.Dataset.from_generator(lambda: iter(range(5)), output_signature=tf.TensorSpec([], tf.int64)))


def test_an_iterator_that_cannot_be_saved_raises_with_the_name_of_the_file_and_a_remedy(tmp_path):
    with pytest.raises(UnsupportedError) as caught:
        Checkpoint(m=Checkpoint(i=iterator_that_cannot_be_saved())).write(tmp_path / "ckpt")
    assert caught.value.key == "m/i/.ATTRIBUTES/ITERATOR_STATE"
    assert "no from_generator" in caught.value.expected
    assert caught.value.remedy == "to leave it out knowingly, save with CheckpointOptions(allow_unsaved=['m/i'])"


def test_an_iterator_that_cannot_be_saved_may_be_left_out_knowingly(tmp_path):
    root = Checkpoint(m=Checkpoint(i=iterator_that_cannot_be_saved()), v=tf.Variable(1.0))
    allowed = CheckpointOptions(allow_unsaved=["m/i"])
    path = root.write(tmp_path / "ckpt", allowed)
    with pytest.raises(AssertionError, match=r"m/i/\.ATTRIBUTES/ITERATOR_STATE"):
        root.read(path).assert_existing_objects_matched()
    root.read(path, allowed).assert_consumed()


def test_random_numbers_from_the_seeds_of_a_data_set_go_on(tmp_path):
    def checkpoint():
        seeds = tf.data.Dataset.random(seed=1).batch(2, drop_remainder=True)
        numbers = seeds.map(lambda seed: tf.random.stateless_uniform([3], seed))
        return Checkpoint(i=iter(numbers))

    saved, live = checkpoint(), checkpoint()
    next(saved.i)
    live.read(saved.write(tmp_path / "ckpt")).assert_consumed()
    assert next(live.i).numpy().tolist() == next(saved.i).numpy().tolist()


@pytest.mark.parametrize("writer", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_an_iterator_that_nothing_took_has_the_name_of_the_file_in_report_and_error(tmp_path, writer):
    path = writer(i=iter(tf.data.Dataset.range(10))).write(str(tmp_path / "ckpt"))
    (key,) = [name for name, _ in milepost.list_variables(path) if name.startswith("i/")]
    status = Checkpoint(j=milepost.Variable(0)).read(path)
    assert [entry.key for entry in status.report().deferred] == [key]
    with pytest.raises(UnmatchedError) as caught:
        status.assert_consumed()
    assert caught.value.key == key


@pytest.mark.parametrize("writer", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_an_iterator_that_nothing_took_has_the_name_of_the_file_in_the_warning(tmp_path, writer):
    path = writer(i=iter(tf.data.Dataset.range(10)), j=tf.Variable(0)).write(str(tmp_path / "ckpt"))
    (key,) = [name for name, _ in milepost.list_variables(path) if name.startswith("i/")]
    live = [Checkpoint(j=tf.Variable(0))]
    live[0].read(path)
    with pytest.warns(UnrestoredWarning, match=f"{key}$"):
        live.clear()


def test_an_iterator_that_was_not_saved_has_the_name_that_a_file_would_have(tmp_path):
    path = Checkpoint(j=milepost.Variable(0)).write(tmp_path / "without")
    live = Checkpoint(i=iter(tf.data.Dataset.range(10)))
    missing = {entry.key for entry in live.read(path).expect_partial().report().missing}
    (key,) = [name for name, _ in milepost.list_variables(live.write(tmp_path / "with")) if name.startswith("i/")]
    assert missing == {key}


@pytest.mark.parametrize("writer", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_table_that_meets_a_variable_is_reported_by_the_names_of_the_file(tmp_path, writer):
    path = writer(t=lookup.MutableHashTable(tf.string, tf.int64, -1)).write(str(tmp_path / "ckpt"))
    keys = [name for name, _ in milepost.list_variables(path) if name.startswith("t/")]
    report = Checkpoint(t=tf.Variable(0.0)).read(path).expect_partial().report()
    assert [entry.key for entry in report.unexpected] == sorted(keys)
    assert len(keys) == 2


@exchanged
def test_a_generator_continues_its_stream(tmp_path, writer, reader):
    generator = tf.random.Generator.from_seed(7)
    generator.normal([3])
    path = writer(g=generator).write(str(tmp_path / "ckpt"))
    expected = generator.normal([5]).numpy().tolist()
    live = tf.random.Generator.from_seed(1)
    reader(g=live).read(path).assert_consumed()
    assert live.normal([5]).numpy().tolist() == expected


def hash_table(items):
    table = lookup.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(tf.constant(list(items)), tf.constant(list(items.values()), tf.int64))
    return table


def dense_table(items):
    table = lookup.DenseHashTable(tf.string, tf.int64, -1, "empty", "deleted")
    table.insert(tf.constant(list(items)), tf.constant(list(items.values()), tf.int64))
    return table


@exchanged
@pytest.mark.parametrize("table", [hash_table, dense_table])
def test_a_table_holds_what_was_saved_and_nothing_else(tmp_path, writer, reader, table):
    path = writer(t=table({"a": 1, "b": 2})).write(str(tmp_path / "ckpt"))
    live = table({"c": 3})
    reader(t=live).read(path).assert_consumed()
    assert live.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [1, 2, -1]


@exchanged
def test_a_table_that_cannot_change_has_no_values(tmp_path, writer, reader):
    def table():
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)

    path = writer(t=table(), v=tf.Variable(3.0)).write(str(tmp_path / "ckpt"))
    live = tf.Variable(0.0)
    reader(t=table(), v=live).read(path).assert_consumed()
    assert live.numpy() == 3


def test_the_object_graph_lists_these_values_as_tensorflow_does(tmp_path):
    live = {
        "i": iter(dataset()),
        "t": hash_table({"a": 1}),
        "d": dense_table({"a": 1}),
        "g": tf.random.Generator.from_seed(1),
    }
    paths = [each(**live).write(str(tmp_path / name)) for name, each in (("o", Checkpoint), ("t", tf.train.Checkpoint))]
    ours, theirs = (milepost.CheckpointView(path).graph for path in paths)
    assert [[(value.name, value.key) for value in node.values] for node in ours.nodes] == [
        [(value.name, value.key) for value in node.values] for node in theirs.nodes
    ]
    assert milepost.list_variables(paths[0]) == milepost.list_variables(paths[1])


class Counts(tf.Module):
    """Has values by the newer protocol, and a variable."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = tf.constant(first), tf.constant(second)
        self.v = tf.Variable(first)

    def _serialize_to_tensors(self):
        return {"first": self.first, "second": self.second}

    def _restore_from_tensors(self, restored_tensors):
        self.first, self.second = restored_tensors["first"], restored_tensors["second"]


@exchanged
def test_objects_that_serialize_themselves_are_exchanged(tmp_path, writer, reader):
    path = writer(c=Counts(1.0, [2, 3])).write(str(tmp_path / "ckpt"))
    live = Counts(0.0, [0])
    reader(c=live).read(path).assert_consumed()
    assert (live.first.numpy(), live.second.numpy().tolist(), live.v.numpy()) == (1, [2, 3], 1)


class Old(tf.Module):
    """Has values by the older protocol."""

    def __init__(self, value):
        super().__init__()
        self.value = tf.constant(value)

    def _gather_saveables_for_checkpoint(self):
        from tensorflow.python.training.saving import saveable_object

        owner = self

        class Saveable(saveable_object.SaveableObject):
            def __init__(self, name):
                specs = [saveable_object.SaveSpec(owner.value, "", f"{name}-part")]
                super().__init__(owner, specs, name)

            def restore(self, restored_tensors, restored_shapes):
                owner.value = restored_tensors[0]

        return {"old": lambda name="": Saveable(name)}


@exchanged
def test_objects_of_the_older_protocol_are_exchanged(tmp_path, writer, reader):
    path = writer(o=Old([1, 2])).write(str(tmp_path / "ckpt"))
    live = Old([0, 0])
    reader(o=live).read(path).assert_consumed()
    assert live.value.numpy().tolist() == [1, 2]


class Text(tf.train.experimental.PythonState):
    """Holds text."""

    def __init__(self, text):
        self.text = text

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        self.text = string_value.decode()


@exchanged
def test_python_state_is_exchanged(tmp_path, writer, reader):
    path = writer(s=Text("saved")).write(str(tmp_path / "ckpt"))
    live = Text("")
    reader(s=live).read(path).assert_consumed()
    assert live.text == "saved"


@pytest.fixture(scope="module")
def saved_by_itself():
    """An object with a registered saver."""
    from tensorflow.python.saved_model import registration

    class Registered(tf.Module):
        pass

    registration.register_checkpoint_saver(
        name="milepost_test",
        predicate=lambda trackable: isinstance(trackable, Registered),
        save_fn=lambda trackables, file_prefix: [],
        restore_fn=lambda trackables, merged_prefix: None,
    )
    return Registered()


def test_objects_with_their_own_saver_are_refused_with_their_path(tmp_path, saved_by_itself):
    root = Checkpoint(m=tf.train.Checkpoint(r=saved_by_itself), v=tf.Variable(0.0))
    with pytest.raises(UntrackableError, match=r"saver of its own, 'Custom\.milepost_test'") as caught:
        root.write(tmp_path / "ckpt")
    assert caught.value.key == "m/r"


def test_objects_with_their_own_saver_may_be_left_out_knowingly(tmp_path, saved_by_itself):
    root = Checkpoint(m=tf.train.Checkpoint(r=saved_by_itself), v=tf.Variable(0.0))
    allowed = CheckpointOptions(allow_unsaved=["m/r"])
    root.read(root.write(tmp_path / "ckpt", allowed), allowed).assert_existing_objects_matched()
