"""No change makes saves and restores slower unseen: what they do for each value is counted, and compared with limits.

Counted are calls of milepost's own functions, the most memory that is allocated at a time, and operations on the storage. These do not
depend on the load of the machine, as times do. Each number is the difference between a large and a small state, divided by the
difference of their sizes, so that what is done once does not count.

The limits are a little above what was counted when they were last set. Whoever makes the work less lowers them. Whoever cannot
help making it more raises them, and says why in the commit.
"""

import gc
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import milepost
from milepost.storage import LocalStorage

PACKAGE = str(Path(milepost.__file__).parent)
SMALL, LARGE = 300, 900


def arrays(count):
    layers = {
        f"layer{n // 10}": {f"w{m}": np.full(4, n + m, np.float32) for m in range(10)} for n in range(0, count, 10)
    }
    return milepost.Checkpoint(layers=layers)


def numbers(count):
    return milepost.Checkpoint(values=[float(n) for n in range(count)])


def variables(count):
    model = milepost.Module()
    for n in range(count):
        setattr(model, f"v{n}", milepost.Variable(np.full(4, n, np.float32)))
    return milepost.Checkpoint(model=model)


STATES = {"arrays": arrays, "numbers": numbers, "variables": variables}

CALLS = {
    ("arrays", "save"): 28,
    ("arrays", "restore"): 45,
    ("arrays", "assert"): 11,
    ("numbers", "save"): 29,
    ("numbers", "restore"): 67,
    ("numbers", "assert"): 14,
    ("variables", "save"): 22,
    ("variables", "restore"): 40,
    ("variables", "assert"): 9,
}
"""The most calls of milepost's functions for each value."""

BYTES = {
    ("arrays", "save"): 1700,
    ("arrays", "restore"): 2800,
    ("numbers", "save"): 1750,
    ("numbers", "restore"): 2800,
}
"""The most bytes that are allocated at a time for each value, beside the state."""


def operation(make, count, what, path):
    """A function that saves, restores or asserts, once everything that happens only once has happened."""
    saved, live = make(count), make(count)
    saved.write(path)
    status = live.read(path)
    status.assert_consumed()
    return {
        "save": lambda: saved.write(path + "-again"),
        "restore": lambda: live.read(path).expect_partial(),
        "assert": status.assert_consumed,
    }[what]


def calls(run):
    counted = 0

    def note(frame, event, _):
        nonlocal counted
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            counted += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counted


def allocated(run):
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def each(measure, make, what, tmp_path):
    small, large = (measure(operation(make, count, what, str(tmp_path / str(count)))) for count in (SMALL, LARGE))
    return (large - small) / (LARGE - SMALL)


@pytest.mark.parametrize(("state", "what"), CALLS)
def test_calls_for_each_value(tmp_path, state, what):
    assert each(calls, STATES[state], what, tmp_path) <= CALLS[state, what]


@pytest.mark.parametrize(("state", "what"), BYTES)
def test_memory_for_each_value(tmp_path, state, what):
    assert each(allocated, STATES[state], what, tmp_path) <= BYTES[state, what]


class Counting(LocalStorage):
    """Counts the operations on files and directories."""

    def __init__(self):
        super().__init__()
        self.counted = Counter()

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name in {
            "create",
            "open",
            "rename",
            "remove",
            "make_directory",
            "sync_directory",
            "list",
            "is_file",
            "in_use",
        }:
            self.counted[name] += 1
        return value


@pytest.mark.parametrize("what", ["save", "restore"])
def test_operations_on_the_storage_do_not_depend_on_the_number_of_values(tmp_path, what):
    found = []
    for count in (SMALL, LARGE):
        storage = Counting()
        options = milepost.CheckpointOptions(storage=storage)
        checkpoint = arrays(count)
        path = str(tmp_path / str(count))
        checkpoint.write(path, options)
        storage.counted.clear()
        if what == "save":
            checkpoint.write(path + "-again", options)
        else:
            checkpoint.read(path, options).expect_partial()
        found.append(dict(storage.counted))
    assert found[0] == found[1]
    assert found[0]
