"""Work that grows with a checkpoint no faster than the checkpoint does, told by counting calls of functions."""

import sys
import tracemalloc

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointOptions, Module, Variable
from milepost.bundle.reader import IndexedReader
from milepost.graph import adapter
from milepost.storage import MemoryStorage
from tests.objects import module

FEW, MANY = 200, 800


@pytest.fixture
def options():
    return CheckpointOptions(storage=MemoryStorage())


def calls_of(action):
    """How many functions were called, those in C too."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def many(count):
    return Checkpoint(m=module(**{f"v{number}": Variable(np.float32(number)) for number in range(count)}))


def arrays(count):
    class Buffer:
        def __init__(self, count):
            self.items = [np.full(2, number, np.float32) for number in range(count)]

        def state_dict(self):
            return {"items": self.items}

        def load_state_dict(self, state):
            self.items = state["items"]

    return Checkpoint(buffer=Buffer(count))


def deferred(path, options):
    return Checkpoint(m=Module()).read(path, options)


def elsewhere(path, options):
    return Checkpoint(other=Variable(0.0)).read(path, options)


def reported(path, options):
    return Checkpoint(m=Module()).read(path, options).report()


def carried(path, options):
    live = Checkpoint(m=Module())
    live.read(path, options)
    live.write("again", options)


def replaced(path, options):
    live = Checkpoint(m=Module())
    live.read(path, options)
    live.read(path, options).stop_waiting()


@pytest.mark.parametrize("make", [many, arrays])
@pytest.mark.parametrize("use", [deferred, elsewhere, reported, carried, replaced])
def test_four_times_the_tensors_take_hardly_more_than_four_times_the_calls(options, make, use):
    counts = []
    for count in (FEW, MANY):
        path = make(count).write(f"of-{count}", options)
        counts.append(calls_of(lambda path=path: use(path, options)))
    assert counts[1] < counts[0] * MANY / FEW * 1.5


@pytest.mark.parametrize("make", [many, arrays])
def test_a_save_of_four_times_the_tensors_takes_hardly_more_than_four_times_the_calls(options, make):
    lives = [make(FEW), make(MANY)]
    counts = [calls_of(lambda live=live: live.write("ckpt", options)) for live in lives]
    assert counts[1] < counts[0] * MANY / FEW * 1.5


def test_a_save_of_a_chain_takes_no_more_than_a_few_copies_of_its_keys(tmp_path):
    """They are in the object graph and in the index, and on the way there. The keys of a chain grow with the square of its length."""
    root = last = module(v=Variable(np.float32(0)))
    keys = 0
    for depth in range(1, 150):
        below = module(v=Variable(np.float32(depth)))
        setattr(last, "n" * 200, below)
        last = below
        keys += 201 * depth
    chain = Checkpoint(root)
    chain.write(tmp_path / "ckpt")
    tracemalloc.start()
    try:
        chain.write(tmp_path / "ckpt")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3.6 * keys


class Holder(Module):
    """Has stand-ins, and says how often it was asked for them."""


class HolderAdapter(adapter.Adapter):
    asked = 0

    def handles(self, kind):
        return kind is Holder

    def children(self, obj):
        return ()

    def stand_ins(self, obj, saved):
        HolderAdapter.asked += 1
        return ()


def test_an_object_is_asked_once_for_its_stand_ins(options):
    path = many(FEW).write("ckpt", options)
    own = HolderAdapter()
    adapter.register(own)
    try:
        Checkpoint(m=Holder()).read(path, options).expect_partial()
    finally:
        adapter.unregister(own)
    assert HolderAdapter.asked == 1


def test_the_keys_of_a_checkpoint_are_listed_once_for_all_objects(options, monkeypatch):
    path = many(FEW).write("ckpt", options)
    listed = []
    keys = IndexedReader.keys
    monkeypatch.setattr(IndexedReader, "keys", lambda reader: listed.append(1) or keys(reader))
    record = Checkpoint(m=Module()).read(path, options)._restoration.record
    values = [node.values[0] for node in record.graph.nodes if node.values]
    assert all(record.saved.stored_keys(value) == [value.key] for value in values)
    assert len(listed) == 1
