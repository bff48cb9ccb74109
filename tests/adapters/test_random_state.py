"""`RandomState`: the generators that a program has as a whole, and its own."""

import random
import subprocess
import sys
import warnings

import numpy as np
import pytest

from milepost import (
    Checkpoint,
    MismatchError,
    RandomState,
    UnrestoredWarning,
    UntrackableError,
    Variable,
    load_checkpoint,
)


@pytest.fixture(autouse=True)
def _global_state_as_before():
    python, numpy = random.getstate(), np.random.get_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)


def draw():
    return random.random(), random.gauss(0, 1), np.random.normal(), np.random.randint(1 << 30)


def test_python_and_numpy_go_on_where_they_were(prefix):
    draw()
    Checkpoint(random=RandomState(), v=Variable(1.0)).write(prefix)
    expected = [draw() for _ in range(3)]
    Checkpoint(random=RandomState(), v=Variable(0.0)).read(prefix).assert_consumed()
    assert [draw() for _ in range(3)] == expected


def test_the_file_tells_which_generator_is_which(prefix):
    Checkpoint(random=RandomState()).write(prefix)
    keys = load_checkpoint(prefix).get_variable_to_shape_map()
    assert keys["random/.ATTRIBUTES/python.Sstate"] == [624]
    assert keys["random/.ATTRIBUTES/numpy.Sstate.Skey"] == [624]


def test_generators_with_names_are_restored_as_attributes(prefix):
    state = RandomState(shuffle=np.random.default_rng(7), noise=random.Random(7))
    Checkpoint(random=state).write(prefix)
    expected = state.shuffle.random(), state.noise.random()
    fresh = RandomState(shuffle=np.random.default_rng(0), noise=random.Random(0))
    Checkpoint(random=fresh).read(prefix).assert_consumed()
    assert (fresh.shuffle.random(), fresh.noise.random()) == expected


def test_a_generator_that_is_named_later_gets_its_state_then(prefix):
    state = RandomState(shuffle=np.random.default_rng(7))
    Checkpoint(random=state).write(prefix)
    fresh = RandomState()
    Checkpoint(random=fresh).read(prefix)
    fresh.shuffle = np.random.default_rng(0)
    assert fresh.shuffle.random() == state.shuffle.random()


def test_what_is_no_generator_is_refused_by_name():
    with pytest.raises(UntrackableError) as caught:
        RandomState(seed=3)
    assert caught.value.key == "seed"


class Drawing:
    """Draws whenever it is asked, and whenever it is restored."""

    def state_dict(self):
        return {"drawn": random.random()}

    def load_state_dict(self, state):
        random.random()


@pytest.mark.parametrize("names", [("a", "z"), ("z", "a")], ids=["before", "behind"])
def test_it_is_saved_and_restored_after_objects_that_draw(prefix, names):
    Checkpoint(**{names[0]: RandomState(), names[1]: Drawing()}).write(prefix)
    expected = draw()
    Checkpoint(**{names[0]: RandomState(), names[1]: Drawing()}).read(prefix)
    assert draw() == expected


def test_it_may_be_attached_after_the_restore(prefix):
    Checkpoint(random=RandomState()).write(prefix)
    expected = draw()
    live = Checkpoint(v=Variable(0.0))
    live.read(prefix)
    live.random = RandomState()
    assert draw() == expected


def test_reports_and_failed_restores_leave_everything_as_it_is(prefix):
    Checkpoint(random=RandomState(), w=np.zeros(3)).write(prefix)
    state = random.getstate()
    with pytest.raises(MismatchError):
        Checkpoint(random=RandomState(), w=np.zeros(2)).read(prefix)
    assert random.getstate() == state


def test_a_checkpoint_without_it_says_that_it_is_missing(prefix):
    status = Checkpoint(random=RandomState(), v=Variable(0.0)).read(Checkpoint(v=Variable(1.0)).write(prefix))
    assert [entry.key for entry in status.report().missing] == ["random/.ATTRIBUTES/py_state"]


def test_a_state_that_a_library_refuses_changes_no_generator(prefix):
    class Impostor:
        def get_state(self):
            return {"python": {"version": 3, "state": np.zeros(2, np.uint32), "position": 0, "gauss_next": None}}

        def set_state(self, state):
            """Takes none."""

    Checkpoint(random=Impostor(), a=np.ones(2)).write(prefix)
    before, live = random.getstate(), Checkpoint(random=RandomState(), a=np.zeros(2))
    with pytest.raises(MismatchError, match="random generator"):
        live.read(prefix)
    assert random.getstate() == before
    assert live.a.tolist() == [0, 0]


class TestPyTorch:
    @pytest.fixture
    def torch(self):
        torch = pytest.importorskip("torch")
        state = torch.get_rng_state()
        yield torch
        torch.set_rng_state(state)

    def test_its_global_generator_goes_on_where_it_was(self, torch, prefix):
        Checkpoint(random=RandomState()).write(prefix)
        expected = torch.rand(5).tolist()
        Checkpoint(random=RandomState()).read(prefix).assert_consumed()
        assert torch.rand(5).tolist() == expected

    def test_its_own_generators_may_have_names(self, torch, prefix):
        state = RandomState(noise=torch.Generator().manual_seed(3))
        Checkpoint(random=state).write(prefix)
        fresh = RandomState(noise=torch.Generator())
        Checkpoint(random=fresh).read(prefix).assert_consumed()
        assert torch.equal(torch.rand(5, generator=fresh.noise), torch.rand(5, generator=state.noise))

    def test_its_state_is_kept_where_it_is_not_imported(self, torch, prefix, tmp_path):
        Checkpoint(random=RandomState()).write(prefix)
        expected = torch.rand(5).tolist()
        code = (
            "import milepost, sys, warnings\n"
            "live = milepost.Checkpoint(random=milepost.RandomState())\n"
            "with warnings.catch_warnings(record=True) as caught:\n"
            f"    live.read({prefix!r})\n"
            "print([str(each.message) for each in caught], 'torch' in sys.modules)\n"
            f"live.write({str(tmp_path / 'again')!r})\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "PyTorch is not imported" in done.stdout
        assert done.stdout.endswith("False\n")
        Checkpoint(random=RandomState()).read(tmp_path / "again")
        assert torch.rand(5).tolist() == expected

    def test_states_of_devices_that_are_not_here_are_warned_of(self, torch, prefix):
        from milepost.adapters.random_state import global_state, set_global_state

        state = global_state()
        state["torch"]["xpu"] = [np.zeros(16, np.uint8)] * 2
        with pytest.warns(UnrestoredWarning, match="2 xpu devices"):
            set_global_state(state)


def test_keys_of_jax_go_on_where_they_were(prefix):
    jax = pytest.importorskip("jax")
    state = RandomState(key=jax.random.key(3))
    state.key, _ = jax.random.split(state.key)
    Checkpoint(random=state).write(prefix)
    fresh = RandomState(key=jax.random.key(0))
    Checkpoint(random=fresh).read(prefix).assert_consumed()
    assert jax.random.key_data(fresh.key).tolist() == jax.random.key_data(state.key).tolist()


def test_nothing_is_imported():
    code = "import milepost, sys; milepost.RandomState(); print({'torch', 'jax', 'torchdata', 'grain', 'datasets'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_it_says_nothing_when_all_is_well(prefix):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpoint(random=RandomState()).read(Checkpoint(random=RandomState()).write(prefix))
