"""Objects that say what state they are in: anything with `state_dict` or `get_state`, and random generators."""

import json
import random

import numpy as np
import pytest

from milepost import (
    Checkpoint,
    MismatchError,
    NoDependency,
    PythonState,
    RefusedError,
    UnsupportedError,
    UntrackableError,
    Variable,
    load_checkpoint,
)
from milepost.graph.adapter import adapter_of


class Reader:
    """Counts, and says how often it was asked."""

    def __init__(self, position=0):
        self.position = position
        self.asked = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.position += 1
        return self.position

    def state_dict(self):
        self.asked += 1
        return {"position": self.position, "seen": np.arange(self.position)}

    def load_state_dict(self, state):
        self.position = state["position"]


class Shuffler:
    def __init__(self, state=(1, b"a")):
        self.now = state

    def get_state(self):
        return self.now

    def set_state(self, state):
        self.now = state


class Strict(Reader):
    """Refuses, after it has changed."""

    def load_state_dict(self, state):
        self.position = -1
        raise RuntimeError("wrong data set")


class Loud(PythonState):
    text = "old"

    def serialize(self):
        return self.text

    def deserialize(self, string_value):
        if string_value == "refuse":
            raise OSError("refused")
        self.text = string_value


def test_an_object_with_state_dict_is_restored_beside_a_variable(prefix):
    Checkpoint(reader=Reader(5), v=Variable(1.0)).write(prefix)
    live = Checkpoint(reader=Reader(), v=Variable(0.0))
    live.read(prefix).assert_consumed()
    assert next(live.reader) == 6
    assert live.v.numpy() == 1.0


def test_an_object_with_get_state_is_restored(prefix):
    Checkpoint(s=Shuffler((3, b"x", None))).write(prefix)
    live = Checkpoint(s=Shuffler())
    live.read(prefix).assert_consumed()
    assert live.s.now == (3, b"x", None)


def test_the_state_is_readable_in_the_file(prefix):
    Checkpoint(reader=Reader(2)).write(prefix)
    reader = load_checkpoint(prefix)
    assert json.loads(reader.get_tensor("reader/.ATTRIBUTES/py_state"))["position"] == 2
    assert reader.get_tensor("reader/.ATTRIBUTES/seen").tolist() == [0, 1]


def test_an_iterator_that_is_attached_after_the_restore_gets_its_state_then(prefix):
    Checkpoint(reader=Reader(5)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    status = live.read(prefix)
    assert [entry.key for entry in status.report().deferred] == [
        "reader/.ATTRIBUTES/py_state",
        "reader/.ATTRIBUTES/seen",
    ]
    live.reader = Reader()
    assert next(live.reader) == 6


def test_a_state_that_waits_is_saved_again(prefix, tmp_path):
    Checkpoint(reader=Reader(5)).write(prefix)
    middle = Checkpoint(v=Variable(0.0))
    middle.read(prefix)
    live = Checkpoint(reader=Reader())
    live.read(middle.write(tmp_path / "again"))
    assert live.reader.position == 5


def test_nobody_is_asked_for_a_report_or_a_plan(prefix):
    live = Checkpoint(reader=Reader())
    status = live.read(Checkpoint(v=Variable(1.0)).write(prefix))
    assert [entry.key for entry in status.report().missing] == ["reader/.ATTRIBUTES/py_state"]
    assert live.reader.asked == 0


def test_a_state_that_was_never_saved_is_missing_where_something_else_was(prefix):
    live = Checkpoint(reader=Reader())
    status = live.read(Checkpoint(reader={"v": Variable(1.0)}).write(prefix))
    with pytest.raises(AssertionError, match="missing"):
        status.assert_existing_objects_matched()


def test_a_refused_state_is_a_mismatch_and_changes_nothing(prefix):
    Checkpoint(a=Reader(5), b=Strict(5), v=Variable(1.0), w=np.ones(2)).write(prefix)
    live = Checkpoint(a=Reader(1), b=Strict(2), v=Variable(0.0), w=np.zeros(2))
    with pytest.raises(MismatchError, match="RuntimeError: wrong data set") as caught:
        live.read(prefix)
    assert caught.value.key.startswith("b/.ATTRIBUTES/")
    assert "Strict" in caught.value.expected
    assert caught.value.file == prefix
    assert (live.a.position, live.v.numpy(), live.w.tolist()) == (1, 0.0, [0, 0])


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, KeyError, OSError, MemoryError])
def test_a_refused_state_is_also_of_the_class_of_what_the_object_raised(prefix, kind):
    class Refuses(Reader):
        def load_state_dict(self, state):
            if state["position"] == 5:
                raise kind("other data")

    Checkpoint(r=Reader(5)).write(prefix)
    with pytest.raises(RefusedError, match=r"refuses its saved state; nothing was changed\n") as caught:
        Checkpoint(r=Refuses(1)).read(prefix)
    assert isinstance(caught.value, kind)
    assert type(caught.value.__cause__) is kind
    assert f"{kind.__name__}: " in caught.value.found
    assert "other data" in caught.value.found


def test_one_that_refuses_gets_its_own_old_state_back_too(prefix):
    class Half(Reader):
        def load_state_dict(self, state):
            super().load_state_dict(state)
            if self.position == 5:
                raise ValueError("five")

    Checkpoint(r=Half(5)).write(prefix)
    live = Checkpoint(r=Half(1))
    with pytest.raises(MismatchError):
        live.read(prefix)
    assert live.r.position == 1


def test_an_object_that_refuses_comes_before_those_that_must_be_asked(prefix):
    saved, live = Loud(), Loud()
    saved.text = "refuse"
    Checkpoint(a=Reader(5), b=saved).write(prefix)
    checkpoint = Checkpoint(a=Reader(1), b=live)
    with pytest.raises(OSError, match="refused"):
        checkpoint.read(prefix)
    assert (checkpoint.a.position, checkpoint.a.asked) == (1, 0)


def test_what_something_else_saved_is_no_state(prefix):
    Checkpoint(reader=Variable(1.0)).write(prefix)
    with pytest.raises(MismatchError, match="not the state") as caught:
        Checkpoint(reader=Reader()).read(prefix)
    assert caught.value.key == "reader/.ATTRIBUTES/VARIABLE_VALUE"


def test_state_that_is_no_plain_data_is_refused_with_both_paths(prefix):
    with pytest.raises(UnsupportedError) as caught:
        Checkpoint(s=Shuffler({"a": [object()]})).write(prefix)
    assert caught.value.key == "s"
    assert "'a/0'" in caught.value.found


def test_an_object_that_cannot_say_its_state_is_named(prefix):
    class Broken(Reader):
        def state_dict(self):
            raise RuntimeError("not begun")

    with pytest.raises(UntrackableError, match="not begun") as caught:
        Checkpoint(r=Broken()).write(prefix)
    assert caught.value.key == "r"


def test_one_that_has_no_state_yet_can_be_restored_all_the_same(prefix):
    class Late(Reader):
        def state_dict(self):
            if self.position == 0:
                raise RuntimeError("not begun")
            return super().state_dict()

    Checkpoint(r=Late(3)).write(prefix)
    live = Checkpoint(r=Late())
    live.read(prefix)
    assert live.r.position == 3


def test_an_object_that_another_adapter_knows_stays_with_that(prefix):
    class Both(Loud):
        state_dict = Reader.state_dict
        load_state_dict = Reader.load_state_dict

    Checkpoint(b=Both()).write(prefix)
    assert load_checkpoint(prefix).get_tensor("b/.ATTRIBUTES/py_state") == b"old"


def test_classes_and_objects_with_half_of_a_pair_are_not_tracked():
    class Half:
        def state_dict(self):
            return {}

    assert adapter_of(Half()) is None
    assert adapter_of(Reader) is None


def test_a_wrapped_object_is_not_asked(prefix):
    reader = Reader()
    Checkpoint(v=Variable(0.0), m={"r": NoDependency(reader)}).write(prefix)
    assert reader.asked == 0


GENERATORS = {
    "random.Random": random.Random,
    "Generator": np.random.default_rng,
    "MT19937": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "Philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "SFC64": lambda seed: np.random.Generator(np.random.SFC64(seed)),
    "RandomState": np.random.RandomState,
}


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_generators_go_on_where_they_were(prefix, make):
    generator = make(3)
    draw = getattr(generator, "normal", None) or (lambda: generator.gauss(0, 1))
    draw()  # an odd number, where they come in pairs
    Checkpoint(g=generator).write(prefix)
    live = Checkpoint(g=make(4))
    live.read(prefix).assert_consumed()
    draws = (
        (lambda g: [g.gauss(0, 1) for _ in range(5)])
        if make is random.Random
        else (lambda g: g.normal(size=5).tolist())
    )
    assert draws(live.g) == draws(generator)


def test_a_bit_generator_goes_on_where_it_was(prefix):
    bits = np.random.PCG64(3)
    Checkpoint(g=bits).write(prefix)
    live = Checkpoint(g=np.random.PCG64(4))
    live.read(prefix)
    assert live.g.random_raw() == bits.random_raw()


def test_a_generator_of_another_kind_refuses(prefix):
    Checkpoint(g=np.random.default_rng(1)).write(prefix)
    with pytest.raises(MismatchError, match="Philox"):
        Checkpoint(g=np.random.Generator(np.random.Philox(1))).read(prefix)


def test_the_system_generator_has_no_state():
    assert adapter_of(random.SystemRandom()) is None
