"""No change makes saves and restores slower unseen: what they do for each value is counted, and compared with limits.

Counted are calls of milepost's own functions, the most memory that is allocated at a time, and operations on the storage. These do not
depend on the load of the machine, as times do. Each number is the difference between a large and a small state, divided by the
difference of their sizes, so that what is done once does not count.

The limits are a little above what was counted when they were last set. Whoever makes the work less lowers them. Whoever cannot
help making it more raises them, and says why in the commit.
"""

import json
import subprocess
import sys
from collections import Counter

import pytest

import milepost
from milepost.storage import LocalStorage
from tests.engine.amount_of_work import LARGE, SMALL, arrays

CALLS = {
    "arrays, save": 16,
    "arrays, restore": 37,
    "arrays, assert": 10,
    "numbers, save": 18,
    "numbers, restore": 60,
    "numbers, assert": 13,
    "variables, save": 12,
    "variables, restore": 33,
    "variables, assert": 8,
}
"""The most calls of milepost's functions for each value."""

BYTES = {
    "arrays, save": 1500,
    "arrays, restore": 2400,
    "numbers, save": 1550,
    "numbers, restore": 2500,
}
"""The most bytes that are allocated at a time for each value, beside the state."""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    command = [sys.executable, "-m", "tests.engine.amount_of_work", str(tmp_path_factory.mktemp("work"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


@pytest.mark.parametrize("state_and_what", CALLS)
def test_calls_for_each_value(found, state_and_what):
    assert found["calls"][state_and_what] <= CALLS[state_and_what]


@pytest.mark.parametrize("state_and_what", BYTES)
def test_memory_for_each_value(found, state_and_what):
    assert found["bytes"][state_and_what] <= BYTES[state_and_what]


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
