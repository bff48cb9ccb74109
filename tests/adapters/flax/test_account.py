"""What `nnx.state` has of an object is saved, or the save fails: NNX' own account is compared with every save."""

import collections
import dataclasses
import datetime

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
import jax
import jax.numpy as jnp
from flax import nnx

import milepost
import milepost.jax


class Momentum(nnx.Variable):
    """A type of variables that a user wrote."""


class Labels:
    """What no file can hold."""


class Pair(collections.namedtuple("Pair", "left right")):
    __slots__ = ()


@dataclasses.dataclass
class Plain:
    weights: object


def make(member, seed=0, **options):
    class Holder(nnx.Module, **options):
        def __init__(self):
            self.layer = nnx.Linear(2, 2, rngs=nnx.Rngs(seed))
            self.member = member(seed)

    return Holder()


def array(seed):
    return jnp.arange(3.0) + seed


SAVED = {
    "variable of a user": lambda seed: Momentum(array(seed)),
    "intermediates": lambda seed: nnx.Intermediate((array(seed), array(seed) + 1)),
    "random streams": lambda seed: nnx.Rngs(seed, dropout=seed + 5),
    "variable of a dict": lambda seed: nnx.Variable({"a": array(seed), "n": seed}),
    "variable of a number": nnx.Variable,
    "array": array,
    "array of NumPy": lambda seed: np.arange(3.0) + seed,
    "named tuple": lambda seed: nnx.data(Pair(array(seed), nnx.Param(array(seed)))),
    "dict of paths": lambda seed: nnx.data({("a", 0): nnx.Param(array(seed)), ("a", 1): array(seed)}),
    "list": lambda seed: nnx.List([nnx.Param(array(seed)), array(seed)]),
    "state": lambda seed: nnx.data(nnx.state(nnx.Linear(2, 2, rngs=nnx.Rngs(seed)))),
    "partial": lambda seed: nnx.data(jax.tree_util.Partial(jnp.add, array(seed))),
    "marked number": nnx.data,
}
REFUSED = {
    "variable of an object": lambda seed: nnx.Variable(Labels()),
    "variable of a date": lambda seed: nnx.BatchStat({"day": datetime.date(2026, 1, 2), "a": array(seed)}),
    "variable of a variable": lambda seed: nnx.Variable({"a": nnx.Param(array(seed))}),
    "objects": lambda seed: np.array([None], object),
    "marked date": lambda seed: nnx.data(datetime.date(2026, 1, 2)),
}
WARNED = {
    "dataclass": lambda seed: Plain(array(seed)),
    "dataclass of a variable": lambda seed: Plain(nnx.Param(array(seed))),
    "deque": lambda seed: collections.deque([array(seed)]),
    "set": lambda seed: frozenset({np.float32(seed)}),
}


def leaves(obj):
    """The bytes of everything that NNX' own account has."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(nnx.state(obj)):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found[jax.tree_util.keystr(path)] = np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes()
    return found


@pytest.mark.parametrize("options", [{}, {"pytree": False}], ids=["pytree", "no pytree"])
@pytest.mark.parametrize("member", SAVED)
def test_all_of_a_state_comes_back(tmp_path, member, options):
    saved, fresh = (make(SAVED[member], seed, **options) for seed in (1, 2))
    path = milepost.Checkpoint(net=saved).write(tmp_path / "ckpt")
    milepost.Checkpoint(net=fresh).read(path).assert_consumed().assert_existing_objects_matched()
    assert leaves(fresh) == leaves(saved)


@pytest.mark.parametrize("member", SAVED)
def test_all_of_a_state_comes_back_in_a_new_module(tmp_path, member):
    saved, live = (make(SAVED[member], seed) for seed in (1, 2))
    before = leaves(live)
    got, status = milepost.jax.restore(milepost.jax.save(tmp_path / "ckpt", saved), live)
    status.assert_consumed()
    assert leaves(got) == leaves(saved)
    assert leaves(live) == before


@pytest.mark.parametrize("member", REFUSED)
def test_what_no_file_can_hold_is_refused_by_its_path(tmp_path, member):
    with pytest.raises(milepost.UntrackableError, match="would not be saved") as caught:
        milepost.Checkpoint(net=make(REFUSED[member])).write(tmp_path / "ckpt")
    assert caught.value.key == "net/member"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("member", WARNED)
def test_what_nnx_would_not_save_either_is_warned_of(tmp_path, member):
    with pytest.warns(milepost.UntrackedWarning, match="net/member: not saved"):
        milepost.Checkpoint(net=make(WARNED[member])).write(tmp_path / "ckpt")


def test_a_part_of_the_account_that_a_save_does_not_know_is_refused(tmp_path):
    class Disguised(nnx.Module):
        """Tells NNX of more than it has in attributes."""

        def __init__(self):
            self.layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))

        def _graph_node_flatten(self):
            nodes, data = super()._graph_node_flatten()
            return [*nodes, ("hidden", nnx.Param(jnp.ones(2)))], data

    with pytest.raises(milepost.UntrackableError, match="in its own account of its state") as caught:
        milepost.Checkpoint(net=Disguised()).write(tmp_path / "ckpt")
    assert caught.value.key == "net/hidden"
