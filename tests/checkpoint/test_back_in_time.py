"""A restore in the same process, of what was saved before the program went on: values that came since are gone, or reported."""

import collections

import numpy as np
import pytest

from milepost import Checkpoint, MismatchError, UnmatchedError, Variable

Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    "since",
    [np.ones(2), [np.ones(2), 1], {"at": np.ones(2)}, Pair(np.ones(2), 3)],
    ids=lambda each: type(each).__name__,
)
def test_arrays_that_took_the_place_of_a_none_are_gone(prefix, since):
    checkpoint = Checkpoint(best=None, log={"best": None})
    path = checkpoint.write(prefix)
    checkpoint.best = checkpoint.log["best"] = since
    checkpoint.read(path).assert_consumed()
    assert checkpoint.best is None
    assert checkpoint.log["best"] is None


def test_a_restore_that_fails_puts_arrays_back_where_a_none_was_saved(prefix):
    checkpoint = Checkpoint(best=None, size=Variable([1.0]))
    path = checkpoint.write(prefix)
    checkpoint.best = best = np.ones(2)
    checkpoint.size = Variable([1.0, 2.0])
    with pytest.raises(MismatchError):
        checkpoint.read(path)
    assert checkpoint.best is best


def test_objects_that_took_the_place_of_a_none_stay_and_are_reported(prefix):
    checkpoint = Checkpoint(head=None)
    path = checkpoint.write(prefix)
    checkpoint.head = {"kernel": Variable(1.0)}
    with pytest.raises(UnmatchedError, match="head/kernel"):
        checkpoint.read(path).assert_existing_objects_matched()
    assert float(checkpoint.head["kernel"]) == 1


@pytest.mark.parametrize("place", ["pair", "log/pair"])
def test_a_tuple_of_numbers_that_came_since_is_reported(prefix, place):
    checkpoint = Checkpoint(log={})
    path = checkpoint.write(prefix)
    if place == "pair":
        checkpoint.pair = (1, (2, 3))
    else:
        checkpoint.log["pair"] = (1, (2, 3))
    status = checkpoint.read(path)
    missing = [entry.key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for entry in status.report().missing]
    assert missing == [f"{place}/0", f"{place}/1/0", f"{place}/1/1"]
    with pytest.raises(UnmatchedError):
        status.assert_existing_objects_matched()


def test_a_tuple_that_comes_after_the_restore_is_the_programs_own(prefix):
    checkpoint = Checkpoint(log={})
    status = checkpoint.read(checkpoint.write(prefix))
    checkpoint.pair = checkpoint.log["pair"] = (1, (2, 3))
    status.assert_consumed()


class TestTreesOfJax:
    @pytest.fixture(autouse=True)
    def jnp(self):
        return pytest.importorskip("jax").numpy

    @pytest.mark.parametrize("wrap", [lambda each: each, lambda each: {"inner": each}], ids=["alone", "nested"])
    @pytest.mark.parametrize("saved", [0, 1])
    def test_members_of_a_list_that_came_since_are_reported(self, prefix, jnp, wrap, saved):
        members = [jnp.zeros(1), {"a": jnp.ones(1)}]
        checkpoint = Checkpoint(tree=wrap(members[:saved]), other=jnp.ones(1))
        path = checkpoint.write(prefix)
        checkpoint.tree = wrap(members)
        status = checkpoint.read(path)
        assert len(status.report().missing) == len(members) - saved
        with pytest.raises(UnmatchedError, match="1/a"):
            status.assert_existing_objects_matched()

    def test_a_state_of_optax_that_took_the_place_of_a_none_is_gone(self, prefix, jnp):
        optax = pytest.importorskip("optax")
        checkpoint = Checkpoint(params=jnp.ones(2), opt_state=None)
        path = checkpoint.write(prefix)
        checkpoint.opt_state = optax.adam(0.1).init(checkpoint.params)
        checkpoint.read(path).assert_consumed()
        assert checkpoint.opt_state is None
