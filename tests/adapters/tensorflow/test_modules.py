"""Modules, lists, dicts and tuples of TensorFlow, exchanged with `tf.train.Checkpoint`."""

import collections

import pytest

import milepost
from milepost import Checkpoint, CheckpointOptions, UntrackableError, UntrackedWarning
from tests.adapters.tensorflow.frameworks import exchanged, tf

Pair = collections.namedtuple("Pair", ["left", "right"])


def module(value):
    made = tf.Module()
    made.v = tf.Variable(value)
    made.members = [tf.Variable(value), {"a": tf.Variable(value)}, 7]
    made.named = {"x": [tf.Variable(value)]}
    made.pair = Pair(tf.Variable(value), (tf.Variable(value),))
    made.inner = tf.Module()
    made.inner.back = made
    return made


def values(made):
    return [
        each.numpy()
        for each in (made.v, made.members[0], made.members[1]["a"], made.named["x"][0], made.pair.left, made.pair[1][0])
    ]


@exchanged
def test_modules_are_exchanged(tmp_path, writer, reader):
    path = writer(m=module(3)).save(str(tmp_path / "ckpt"))
    live = module(0)
    reader(m=live).restore(path).assert_consumed().assert_existing_objects_matched()
    assert values(live) == [3] * 6


def test_the_object_graph_is_that_of_tensorflow(tmp_path):
    live = module(3)
    densely = milepost.CheckpointOptions(data_alignment=1)
    ours = Checkpoint(m=live).write(tmp_path / "ours", densely)
    theirs = tf.train.Checkpoint(m=live).write(str(tmp_path / "theirs"))
    assert milepost.CheckpointView(ours).graph == milepost.CheckpointView(theirs).graph


@exchanged
def test_a_module_is_a_root(tmp_path, writer, reader):
    path = writer(module(3)).write(str(tmp_path / "ckpt"))
    live = module(0)
    reader(live).read(path).assert_consumed()
    assert values(live) == [3] * 6


def test_a_tensorflow_checkpoint_is_an_object_like_others(tmp_path):
    path = Checkpoint(c=tf.train.Checkpoint(v=tf.Variable(3.0))).write(tmp_path / "ckpt")
    live = tf.train.Checkpoint(v=tf.Variable(0.0))
    Checkpoint(c=live).read(path).assert_consumed()
    assert live.v.numpy() == 3


def test_containers_of_milepost_hold_objects_of_tensorflow(tmp_path):
    def root(value):
        made = milepost.Module()
        made.members = [tf.Variable(value), {"a": module(value)}]
        return made

    live = root(0)
    Checkpoint(root=live).read(Checkpoint(root=root(3)).write(tmp_path / "ckpt")).assert_consumed()
    assert live.members[0].numpy() == 3
    assert values(live.members[1]["a"]) == [3] * 6


def test_lists_whose_members_were_replaced_are_saved_as_they_are(tmp_path):
    """TensorFlow refuses to save them."""

    def changed(value):
        made = tf.Module()
        made.members = [tf.Variable(0.0), tf.Variable(0.0)]
        made.members[1] = tf.Variable(value)
        del made.members[0]
        return made

    live = changed(0.0)
    Checkpoint(m=live).read(Checkpoint(m=changed(3.0)).write(tmp_path / "ckpt")).assert_consumed()
    assert [each.numpy() for each in live.members] == [3]


def test_dicts_that_lost_a_member_are_saved_as_they_are(tmp_path):
    def changed(value):
        made = tf.Module()
        made.named = {"a": tf.Variable(value), "b": tf.Variable(value)}
        made.named.pop("b")
        return made

    live = changed(0.0)
    path = Checkpoint(m=changed(3.0)).write(tmp_path / "ckpt")
    Checkpoint(m=live).read(path).assert_consumed()
    assert [key for key, _ in milepost.list_variables(path)][1:] == ["m/named/a/.ATTRIBUTES/VARIABLE_VALUE"]


def test_a_dict_key_that_is_no_string_is_refused_with_its_path(tmp_path):
    made = tf.Module()
    made.named = {1: tf.Variable(0.0)}
    with pytest.raises(UntrackableError) as caught:
        Checkpoint(m=made).write(tmp_path / "ckpt")
    assert caught.value.key == "m/named/1"


@pytest.mark.parametrize("path", ["m/cache", "m/cache/-1"])
def test_a_member_under_a_key_that_is_no_string_can_be_left_out(tmp_path, path):
    """As the joint distributions of TensorFlow Probability make them when they are used."""
    made = tf.Module()
    made.cache = {"a": tf.Variable(2.0)}
    made.cache[-1] = [tf.Variable(1.0)]
    allowed = CheckpointOptions(allow_unsaved=[path])
    saved = Checkpoint(m=made).write(tmp_path / "ckpt", allowed)
    assert [key for key, _ in milepost.list_variables(saved)][1:] == ["m/cache/a/.ATTRIBUTES/VARIABLE_VALUE"]
    Checkpoint(m=made).read(saved, allowed).assert_consumed().assert_existing_objects_matched()


def test_functions_are_nodes_without_values(tmp_path):
    def made(value):
        module = tf.Module()
        module.v = tf.Variable(value)
        module.f = tf.function(lambda: module.v + 1)
        return module

    path = Checkpoint(m=made(3.0)).write(tmp_path / "ckpt")
    live = made(0.0)
    tf.train.Checkpoint(m=live).read(path).assert_consumed()
    assert live.f().numpy() == 4


def test_objects_of_milepost_in_attributes_of_tensorflow_objects_are_saved(tmp_path):
    """TensorFlow passes over them in silence, and over what is saved of them."""

    def made(value):
        module = tf.Module()
        module.v = tf.Variable(value)
        module.ours = milepost.Variable(value)
        return module

    path = Checkpoint(m=made(3.0)).write(tmp_path / "ckpt")
    live, theirs = made(0.0), made(0.0)
    Checkpoint(m=live).read(path).assert_consumed()
    assert (live.v.numpy(), live.ours.numpy()) == (3, 3)
    tf.train.Checkpoint(m=theirs).read(path).assert_consumed()
    assert (theirs.v.numpy(), theirs.ours.numpy()) == (3, 0)


@pytest.mark.parametrize(
    "container", [set, collections.deque, lambda members: collections.defaultdict(int, a=members[0])]
)
def test_containers_that_cannot_be_tracked_are_warned_of_with_their_path(tmp_path, container):
    module = tf.Module()
    module.inner = tf.Module()
    module.inner.held = container([tf.Module()])
    with pytest.warns(UntrackedWarning, match="m/inner/held: not saved"):
        Checkpoint(m=module).write(tmp_path / "ckpt")
