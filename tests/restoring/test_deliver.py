"""How saved values get into live objects: all or none, and a little at a time."""

import random
import tracemalloc

import numpy as np
import pytest

from milepost import Checkpoint, CorruptCheckpointError, MismatchError, PythonState, Variable

MIB = 1 << 20
LARGE = 4 * MIB
"""Elements of an array of 16 MiB."""


def read_only(count, value):
    arrays = [np.full(LARGE, value + number, np.float32) for number in range(count)]
    for array in arrays:
        array.flags.writeable = False
    return arrays


def strided(count, value):
    arrays = [np.full((LARGE, 2), 0, np.float32)[:, 0] for _ in range(count)]
    for array in arrays:
        array[...] = value
    return arrays


def peak_of(action):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        action()
        return (tracemalloc.get_traced_memory()[1] - before) / MIB
    finally:
        tracemalloc.stop()


def test_arrays_that_get_successors_take_the_memory_of_those_and_little_more(prefix):
    Checkpoint(a=read_only(8, 1)).write(prefix)
    live = Checkpoint(a=read_only(8, 0))
    assert peak_of(lambda: live.read(prefix)) < 128 + 64
    assert [float(array[-1]) for array in live.a] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_arrays_that_are_copied_into_take_little_memory(prefix):
    Checkpoint(a=read_only(8, 1)).write(prefix)
    live = Checkpoint(a=strided(8, 0))
    assert peak_of(lambda: live.read(prefix)) < 64
    assert [float(array[-1]) for array in live.a] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_nothing_is_given_to_anyone_before_all_bytes_were_verified(prefix):
    Checkpoint(a=read_only(4, 1), v=Variable(1.0), g=random.Random(1)).write(prefix)
    data = f"{prefix}.data-00000-of-00001"
    with open(data, "r+b") as file:
        file.seek(60 * MIB)
        file.write(b"damaged!")
    live = Checkpoint(a=read_only(4, 0), v=Variable(0.0), g=random.Random(2))
    with pytest.raises(CorruptCheckpointError, match="checksum"):
        live.read(prefix)
    assert [float(array[0]) for array in live.a] == [0, 1, 2, 3]
    assert live.v.numpy() == 0
    assert live.g.getstate() == random.Random(2).getstate()


class Order(PythonState):
    """Notes when it is restored."""

    def __init__(self, name, notes, refuses=False):
        self.name, self.notes, self.refuses = name, notes, refuses

    def serialize(self):
        return self.name

    def deserialize(self, string_value):
        self.notes.append(string_value)
        if self.refuses:
            raise ValueError("no")


def test_objects_that_may_refuse_come_before_large_arrays_that_cannot(prefix):
    Checkpoint(a=strided(3, 1), z=Order("z", [])).write(prefix)
    live = Checkpoint(a=strided(3, 0), z=Order("z", [], refuses=True))
    with pytest.raises(ValueError, match="no"):
        live.read(prefix)
    assert [float(array[0]) for array in live.a] == [0, 0, 0]


def test_an_object_that_takes_more_than_is_held_at_a_time_gets_it_all(prefix):
    class Big:
        def __init__(self, count):
            self.arrays = read_only(count, 1)

        def state_dict(self):
            return {"arrays": self.arrays}

        def load_state_dict(self, state):
            self.arrays = state["arrays"]

    Checkpoint(big=Big(4), more=read_only(3, 5)).write(prefix)
    live = Checkpoint(big=Big(0), more=read_only(3, 0))
    live.read(prefix).assert_consumed()
    assert [float(array[-1]) for array in [*live.big.arrays, *live.more]] == [1, 2, 3, 4, 5, 6, 7]


def test_bytes_that_are_no_text_are_refused_by_an_array_of_text_and_nothing_changes(prefix):
    Checkpoint(a=np.array([b"\xff"]), b=strided(1, 1)).write(prefix)
    live = Checkpoint(a=np.array(["old"]), b=strided(1, 0))
    with pytest.raises(MismatchError, match="UTF-8") as caught:
        live.read(prefix)
    assert caught.value.key == "a/.ATTRIBUTES/VARIABLE_VALUE"
    assert (live.a.tolist(), float(live.b[0][0])) == (["old"], 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda value: Variable(np.full(8192, value, np.float32)),
        lambda value: np.full((8192, 2), value, np.float32)[:, 0],
    ],
    ids=["in place", "assigned"],
)
def test_no_more_than_64_mib_of_many_small_tensors_are_held_at_a_time(prefix, make):
    count = 4800  # of 32 KiB each
    Checkpoint(l=[make(1) for _ in range(count)]).write(prefix)
    live = Checkpoint(l=[make(0) for _ in range(count)])
    live.read(prefix)  # what is made once, such as tables, is not counted
    assert peak_of(lambda: live.read(prefix)) < 64
    assert {float(np.asarray(each)[-1]) for each in live.l} == {1}
