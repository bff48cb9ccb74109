"""What a program makes as it goes on keeps its own value; what it builds again gets the saved one."""

import collections
import functools
import warnings

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Module, UnrestoredWarning, Variable
from milepost.errors import UntrackableError

Transition = collections.namedtuple("Transition", "state action done")
WITHOUT_TYPES = CheckpointOptions(data_alignment=1)
"""Writes what TensorFlow writes, which does not name the types of arrays."""


def array(value):
    return np.full(2, float(value))


def saved(path, key):
    return milepost.load_variable(path, key + "/.ATTRIBUTES/VARIABLE_VALUE").tolist()


def in_numpy(i):
    return array(i)


def in_torch(i):
    return pytest.importorskip("torch").full((2,), float(i))


def in_jax(i):
    return pytest.importorskip("jax").numpy.full(2, float(i))


MEMBERS = {
    "array": in_numpy,
    "tensor": in_torch,
    "array of JAX": in_jax,
    "scalar of JAX": lambda i: in_jax(i)[0],
    "tuple": lambda i: (array(i), i, i / 2, None, i == 2),
    "tuple of arrays": lambda i: (array(i), array(-i)),
    "dict": lambda i: {"state": array(i), "reward": i / 2, "info": {"steps": [i, array(i)]}},
    "tuple of JAX": lambda i: (in_jax(i), i, {"reward": i / 2}),
    "named tuple": lambda i: Transition(array(i), i, False),
    "named tuple of JAX": lambda i: Transition(in_jax(i), i, False),
    "bfloat16": lambda i: in_torch(i).bfloat16(),
    "no dimensions": lambda i: np.array(i),
    "empty": lambda i: np.zeros((0, i)),
}


def same(left, right):
    assert type(left) is type(right) or isinstance(left, type(right))
    if isinstance(right, (list, tuple)):
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            same(*pair)
    elif isinstance(right, dict):
        assert list(left) == list(right)
        for name in right:
            same(left[name], right[name])
    elif hasattr(right, "tolist"):
        assert (left.dtype, left.shape, left.tolist()) == (right.dtype, right.shape, right.tolist())
    else:
        assert left == right


@pytest.mark.parametrize("member", list(MEMBERS))
def test_a_memory_goes_on_over_five_restarts(member, tmp_path):
    """In the natural spelling: an empty list, restored, appended to."""
    make = MEMBERS[member]
    for restart in range(5):
        checkpoint = Checkpoint(memory=[], step=0)
        manager = CheckpointManager(checkpoint, tmp_path, 2)
        manager.restore_or_initialize()
        same(list(checkpoint.memory), [make(i) for i in range(3 * restart)])
        for _ in range(3):
            checkpoint.memory.append(make(checkpoint.step))
            checkpoint.step += 1
        manager.save()


@pytest.fixture
def prefix(tmp_path):
    return str(tmp_path / "ckpt")


class Memory(Module):
    def __init__(self):
        self.items = []


@pytest.mark.parametrize("member", ["array", "tensor", "array of JAX", "tuple of arrays"])
def test_a_memory_in_a_module_goes_on_too(member, tmp_path):
    make = MEMBERS[member]
    for restart in range(3):
        checkpoint = Checkpoint(agent=Memory())
        manager = CheckpointManager(checkpoint, tmp_path, 2)
        manager.restore_or_initialize()
        same(list(checkpoint.agent.items), [make(i) for i in range(restart)])
        checkpoint.agent.items.append(make(restart))
        manager.save()


def test_numbers_beside_arrays_in_a_modules_list_are_named(prefix):
    checkpoint = Checkpoint(agent=Memory())
    checkpoint.agent.items.append((array(0), 1, 0.5))
    with pytest.warns(milepost.UntrackedWarning, match=r"agent/items/0: not saved: the numbers .* Checkpoint itself"):
        checkpoint.write(prefix)


def test_the_members_of_a_list_are_matched_and_what_is_appended_is_not_missing(prefix):
    path = Checkpoint(memory=[array(0), array(1)]).write(prefix)
    fresh = Checkpoint(memory=[])
    status = fresh.read(path).assert_consumed()
    fresh.memory.append(array(2))
    fresh.memory.append({"a": array(3), "b": [array(4)]})
    status.assert_consumed()


def test_a_list_that_comes_after_the_restore_is_built_again_as_in_the_guide(prefix):
    path = Checkpoint(listed=[array(1), array(2)]).write(prefix)
    fresh = Checkpoint()
    fresh.read(path).expect_partial()
    fresh.listed = []
    assert fresh.listed == []
    fresh.listed.append(array(0))
    assert fresh.listed[0][0] == 1


def test_an_empty_dict_has_its_lists_of_arrays(prefix):
    path = Checkpoint(history={"loss": [array(0)]}).write(prefix)
    fresh = Checkpoint(history={})
    fresh.read(path)
    fresh.history.setdefault("loss", []).append(array(1))
    assert [each[0] for each in fresh.history["loss"]] == [0, 1]


def test_an_empty_dict_has_the_dicts_of_its_lists_of_arrays(prefix):
    path = Checkpoint(history={"train": {"loss": [array(0)]}}).write(prefix)
    fresh = Checkpoint(history={})
    fresh.read(path)
    fresh.history.setdefault("train", {}).setdefault("loss", []).append(array(1))
    assert [each[0] for each in fresh.history["train"]["loss"]] == [0, 1]


def test_an_empty_dict_waits_for_its_dicts_of_named_arrays(prefix):
    path = Checkpoint(params={"layer": {"kernel": array(1), "log": [array(2)]}}).write(prefix)
    fresh = Checkpoint(params={})
    status = fresh.read(path)
    assert fresh.params == {}
    fresh.params["layer"] = {"kernel": array(0), "log": [array(0)]}
    assert (fresh.params["layer"]["kernel"][0], fresh.params["layer"]["log"][0][0]) == (1, 2)
    status.assert_consumed()


def test_a_none_takes_a_saved_array(prefix):
    path = Checkpoint(best=array(7), weights={"w": array(8), "b": (array(9),)}).write(prefix)
    fresh = Checkpoint(best=None, weights=None)
    fresh.read(path).assert_consumed()
    assert (fresh.best[0], fresh.weights["w"][0], fresh.weights["b"][0][0]) == (7, 8, 9)


def test_an_array_in_two_places_comes_back_as_one(prefix):
    best = array(7)
    path = Checkpoint(best=best, memory=[array(1), best]).write(prefix)
    fresh = Checkpoint(best=None, memory=[])
    fresh.read(path).assert_consumed()
    assert fresh.memory[1] is fresh.best


def test_an_array_that_is_live_is_put_into_the_list_that_lacks_it(prefix):
    best = array(7)
    path = Checkpoint(best=best, memory=[best]).write(prefix)
    live = array(0)
    fresh = Checkpoint(best=live, memory=[])
    fresh.read(path).assert_consumed()
    assert fresh.memory[0] is live


def test_a_list_that_is_not_empty_keeps_its_length(prefix):
    path = Checkpoint(layers=[array(1), array(2), array(3)]).write(prefix)
    fresh = Checkpoint(layers=[array(0), array(0)])
    with pytest.raises(milepost.UnmatchedError, match="layers/2"):
        fresh.read(path).assert_consumed()
    assert len(fresh.layers) == 2


def test_an_array_that_was_live_and_not_saved_is_missing(prefix):
    path = Checkpoint(layers=[array(1), array(2)]).write(prefix)
    fresh = Checkpoint(layers=[array(0), array(0), array(0)])
    with pytest.raises(milepost.UnmatchedError, match="layers/2"):
        fresh.read(path).assert_existing_objects_matched()


def test_a_failed_restore_leaves_an_empty_list_empty(prefix):
    path = Checkpoint(memory=[array(1)], w=array(0)).write(prefix)
    fresh = Checkpoint(memory=[], w=np.zeros(3))
    with pytest.raises(milepost.MismatchError):
        fresh.read(path)
    assert fresh.memory == []


def test_named_tuples_of_a_class_that_is_not_there_wait(prefix):
    path = Checkpoint(memory=[Transition(array(1), 0, True)]).write(prefix)
    globals()["Transition"], kept = None, Transition
    try:
        fresh = Checkpoint(memory=[])
        status = fresh.read(path)
    finally:
        globals()["Transition"] = kept
    assert (fresh.memory, len(status.report().deferred)) == ([], 3)
    status.expect_partial()


class TestWithoutTypes:
    """Files of TensorFlow's, and lists with other objects: nobody knows what their members were."""

    def test_an_appended_array_is_its_own_and_a_warning_counts_and_names_what_is_left(self, prefix):
        path = Checkpoint(memory=[array(0), array(1)]).write(prefix, WITHOUT_TYPES)
        fresh = Checkpoint(memory=[])
        fresh.read(path).expect_partial()
        with pytest.warns(UnrestoredWarning, match=r"2 saved values were deferred \(memory/0, memory/1\)") as caught:
            fresh.memory.extend([array(7), array(8)])
        assert len(caught) == 1
        assert [each[0] for each in fresh.memory] == [7, 8]

    def test_what_is_left_is_in_no_later_save(self, prefix):
        path = Checkpoint(memory=[array(0), array(1)]).write(prefix, WITHOUT_TYPES)
        fresh = Checkpoint(memory=[])
        fresh.read(path)
        with pytest.warns(UnrestoredWarning):
            fresh.memory.append(array(7))
        again = Checkpoint(memory=[])
        again.read(fresh.write(prefix + "2")).assert_consumed()
        assert [each[0] for each in again.memory] == [7]

    def test_an_appended_variable_takes_the_saved_value(self, prefix):
        path = Checkpoint(memory=[array(0), array(1)]).write(prefix, WITHOUT_TYPES)
        fresh = Checkpoint(memory=[])
        fresh.read(path).expect_partial()
        fresh.memory.append(Variable(array(7)))
        assert fresh.memory[0].numpy().tolist() == [0, 0]


class TestVariables:
    def test_a_list_that_grows_past_what_was_saved_is_warned_of_once(self, prefix):
        path = Checkpoint(memory=[Variable(0.0), Variable(1.0)]).write(prefix)
        fresh = Checkpoint(memory=[])
        fresh.read(path)
        fresh.memory.append(Variable(7.0))
        fresh.memory.append(Variable(8.0))
        with pytest.warns(UnrestoredWarning, match=r"2 saved values went to .* \(memory/0, memory/1\)") as caught:
            fresh.memory.extend([Variable(9.0), Variable(10.0)])
        assert len(caught) == 1
        assert [float(each) for each in fresh.memory] == [0, 1, 9, 10]

    def test_a_list_that_is_built_again_is_not_warned_of(self, prefix):
        path = Checkpoint(memory=[Variable(0.0), Variable(1.0)]).write(prefix)
        fresh = Checkpoint(memory=[])
        status = fresh.read(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fresh.memory.extend([Variable(7.0), Variable(8.0)])
            fresh.write(prefix + "2")
        status.assert_consumed()

    def test_after_a_save_an_appended_variable_is_its_own(self, prefix):
        path = Checkpoint(memory=[Variable(0.0)]).write(prefix)
        fresh = Checkpoint(memory=[])
        fresh.read(path)
        fresh.write(prefix + "2")
        with pytest.warns(UnrestoredWarning, match="memory/0"):
            fresh.memory.append(Variable(7.0))
        assert float(fresh.memory[0]) == 7

    def test_after_a_save_a_variable_under_a_name_still_takes_the_saved_value(self, prefix):
        path = Checkpoint(v=Variable(1.0)).write(prefix)
        fresh = Checkpoint()
        fresh.read(path)
        fresh.write(prefix + "2")
        fresh.v = Variable(7.0)
        assert float(fresh.v) == 1


class TestArraysUnderNames:
    def test_takes_the_saved_value_before_the_first_save(self, prefix):
        path = Checkpoint(w=array(1)).write(prefix)
        fresh = Checkpoint()
        fresh.read(path)
        fresh.w = array(7)
        assert fresh.w[0] == 1

    @pytest.mark.parametrize(
        ("key", "put"),
        [
            ("w", lambda checkpoint: setattr(checkpoint, "w", array(7))),
            ("d/w", lambda checkpoint: checkpoint.d.update(w=array(7))),
        ],
        ids=["attribute", "key"],
    )
    def test_is_its_own_after_a_save(self, key, put, prefix):
        path = Checkpoint(d={"w": array(1)}, w=array(1)).write(prefix)
        fresh = Checkpoint(d={})
        fresh.read(path)
        assert saved(fresh.write(prefix + "2"), key) == [1, 1]
        with pytest.warns(UnrestoredWarning, match=rf"one saved value was deferred \({key}\)"):
            put(fresh)
        assert saved(fresh.write(prefix + "3"), key) == [7, 7]

    def test_takes_the_saved_value_in_a_module_even_after_a_save(self, prefix):
        class Layer(Module):
            def __call__(self):
                if not hasattr(self, "kernel"):
                    self.kernel = array(7)
                return self.kernel

        layer = Layer()
        layer()
        path = Checkpoint(layer=layer).write(prefix)
        fresh = Checkpoint(layer=Layer())
        fresh.read(path)
        fresh.layer.kernel = array(0)
        again = Checkpoint(layer=Layer())
        again.read(path)
        again.write(prefix + "2")
        assert again.layer()[0] == 7


class TestTreesOfJax:
    @pytest.fixture(autouse=True)
    def jnp(self):
        return pytest.importorskip("jax").numpy

    def test_a_longer_tree_that_is_assigned_keeps_its_own_values(self, prefix, jnp):
        path = Checkpoint(state={"params": jnp.ones(2), "ema": jnp.ones(2)}).write(prefix)
        fresh = Checkpoint(state={"params": jnp.zeros(2)})
        fresh.read(path)
        with pytest.warns(UnrestoredWarning, match="state/ema"):
            fresh.state = {"params": fresh.state["params"] * 2, "ema": jnp.full(2, 5.0)}
        assert (fresh.state["params"][0], fresh.state["ema"][0]) == (2, 5)
        assert saved(fresh.write(prefix + "2"), "state/ema") == [5, 5]

    def test_a_shorter_tree_that_is_assigned_takes_the_rest_along(self, prefix, jnp):
        path = Checkpoint(state={"params": jnp.ones(2), "ema": jnp.ones(2)}).write(prefix)
        fresh = Checkpoint(state={"params": jnp.zeros(2)})
        fresh.read(path)
        fresh.state = {"params": fresh.state["params"] * 2}
        assert saved(fresh.write(prefix + "2"), "state/ema") == [1, 1]

    def test_a_save_refuses_what_was_put_into_a_plain_dict_without_a_word(self, prefix, jnp):
        path = Checkpoint(state={"params": jnp.ones(2), "ema": jnp.ones(2)}).write(prefix)
        fresh = Checkpoint(state={"params": jnp.zeros(2)})
        status = fresh.read(path)
        fresh.state["ema"] = jnp.full(2, 5.0)
        with pytest.raises(UntrackableError, match="state/ema"):
            fresh.write(prefix + "2")
        assert fresh.state["ema"][0] == 5
        status.stop_waiting()
        assert saved(fresh.write(prefix + "3"), "state/ema") == [5, 5]


class TestCachedProperty:
    class Cached(Module):
        @functools.cached_property
        def w(self):
            return Variable(1.0)

    class Plain:
        @functools.cached_property
        def w(self):
            return Variable(1.0)

    class Mixed(Module, Plain):
        pass

    @pytest.mark.parametrize("kind", [Cached, Mixed])
    def test_has_its_saved_value_before_it_is_used(self, kind, prefix):
        obj = kind()
        obj.w.assign(5.0)
        path = Checkpoint(obj=obj).write(prefix)
        fresh = Checkpoint(obj=kind())
        fresh.read(path)
        assert float(fresh.obj.w) == 5
        fresh.obj.w.assign_add(10.0)
        assert saved(fresh.write(prefix + "2"), "obj/w") == 15

    def test_is_computed_once(self):
        obj = self.Cached()
        assert obj.w is obj.w
        assert isinstance(self.Cached.w, functools.cached_property)


def test_a_save_does_not_overwrite_what_came_without_a_word(prefix):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint()
    status = live.read(path)
    vars(live)["v"] = Variable(7.0)
    with pytest.raises(UntrackableError, match="trained or changed") as caught:
        live.write(prefix + "2")
    assert (caught.value.key, float(live.v)) == ("v", 7)
    status.report()  # somebody asks
    assert float(live.v) == 1
