"""Plain state of very many parts: the work grows with their number, and not with its square."""

from typing import Any

import numpy as np
import pytest

import milepost
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import _entry_name, pack, to_text


class CountedName(str):
    """A name that counts how often it is compared with another string that is not itself."""

    __slots__ = ()
    __hash__ = str.__hash__
    comparisons = 0

    def __eq__(self, other):
        CountedName.comparisons += 1
        return str.__eq__(self, other)


class Named(milepost.TensorState):
    def __init__(self, count):
        self.count = count

    def serialize(self):
        return {CountedName(f"value{number}"): np.float32(number) for number in range(self.count)}

    def deserialize(self, tensors):
        self.tensors = tensors


class Replay:
    """A replay buffer: many small arrays in one ``state_dict``."""

    def __init__(self, count=0):
        self.steps = [(np.full(2, number, np.float32), number) for number in range(count)]

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def test_a_save_does_not_compare_every_value_of_an_object_with_every_other(tmp_path):
    count = 2000
    CountedName.comparisons = 0
    milepost.Checkpoint(named=Named(count)).write(tmp_path / "ckpt")
    assert CountedName.comparisons < 20 * count


def test_a_state_of_10000_arrays_is_saved_and_restored(tmp_path):
    prefix = milepost.Checkpoint(buffer=Replay(10_000)).write(tmp_path / "ckpt")
    buffer = Replay()
    milepost.Checkpoint(buffer=buffer).read(prefix).assert_consumed()
    assert len(buffer.steps) == 10_000
    assert buffer.steps[9_999][0].tolist() == [9_999, 9_999]


@pytest.mark.parametrize("name", ["\x01{}".format, "\ue000{}".format], ids=["control", "private use"])
def test_names_that_cannot_be_shown_get_numbers_of_their_own(name):
    state = {name(chr(0xE000 + number)): np.array(number) for number in range(50)}
    arrays = pack(state)
    assert len(arrays) == 51
    assert {key: value.item() for key, value in unpack(arrays).items()} == dict(zip(state, range(50), strict=True))


class CountedLookups(dict[Any, Any]):
    """Counts how often it is asked for a key."""

    lookups = 0

    def __contains__(self, key):
        self.lookups += 1
        return super().__contains__(key)


def test_entries_of_one_readable_name_are_numbered_without_trying_every_number():
    taken, numbers = CountedLookups(), {}
    for _ in range(200):
        taken[_entry_name("\ue000", taken, numbers)] = None
    assert len(taken) == 200
    assert taken.lookups < 3 * 200


def test_a_long_name_does_not_make_the_paths_below_it_long():
    paths = []

    def store(array, path):
        paths.append(path)
        return {"entry": "x"}

    to_text({"n" * 100_000: [np.zeros(1), [np.zeros(1)]]}, "", store)
    assert max(map(len, paths)) < 2000
    assert [path[-4:] for path in paths] == ["nn/0", "/1/0"]
