"""No change makes saves and restores slower unseen: what they do for each value is counted, and compared with limits.

Counted are calls of milepost's own functions, the most memory that is allocated at a time and what stays of it, the bytes of checksums,
system calls that read or write, and operations on the storage. These do not depend on the load of the machine, as times do. Each number is the difference between a large and a small state, divided by the
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
    "arrays, save": 13,
    "arrays, restore": 17.5,
    "arrays, assert": 3.4,
    "numbers, save": 12.3,
    "numbers, restore": 24.3,
    "numbers, assert": 4.2,
    "variables, save": 8.3,
    "variables, restore": 15.1,
    "variables, assert": 1.2,
    "parameters, save": 25.3,
    "parameters, restore": 28.1,
    "parameters, assert": 11,
    "jax arrays, save": 24.4,
    "jax arrays, restore": 46.5,
    "jax arrays, assert": 8.5,
}
"""The most calls of milepost's functions for each value."""

BYTES = {
    "arrays, save": 590,
    "arrays, restore": 1250,
    "numbers, save": 620,
    "numbers, restore": 1115,
    "variables, save": 605,
    "variables, restore": 1100,
    "parameters, save": 800,
    "parameters, restore": 1425,
    "jax arrays, save": 1145,
    "jax arrays, restore": 2600,
}
"""The most bytes that are allocated at a time for each value, beside the state."""

KEPT = {
    "arrays, save": 0.1,
    "arrays, restore": 2.9,
    "numbers, save": 0.1,
    "numbers, restore": 2.2,
    "variables, save": 0.1,
    "variables, restore": 2.2,
    "parameters, save": 0.1,
    "parameters, restore": 2.2,
    "jax arrays, save": 0.1,
    "jax arrays, restore": 4.5,
}
"""The most blocks of memory for each value that stay allocated as long as the program keeps what the operation returns."""

HASHED = {
    "arrays, save": 170,
    "arrays, restore": 175,
    "numbers, save": 141,
    "numbers, restore": 145,
    "variables, save": 145,
    "variables, restore": 150,
    "parameters, save": 145,
    "parameters, restore": 150,
    "jax arrays, save": 145,
    "jax arrays, restore": 200,
}
"""The most bytes for each value of which a checksum is computed: its own, and those of its entry and its part of the object graph."""


LATE = {"variables, late": 106.1, "parameters, late": 117.1}
"""The most calls of milepost's functions for each value whose object is made after the restore, the restore included."""

SYSTEM_CALLS = 0.02
"""The most system calls that read or write, for each value. Values are moved many at a time."""


def measured(tmp_path_factory, framework):
    command = [sys.executable, "-m", "tests.engine.amount_of_work", str(tmp_path_factory.mktemp("work")), framework]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def of_numpy(tmp_path_factory):
    return measured(tmp_path_factory, "")


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory):
    pytest.importorskip("torch")
    return measured(tmp_path_factory, "torch")


@pytest.fixture(scope="module")
def of_jax(tmp_path_factory):
    pytest.importorskip("jax")
    return measured(tmp_path_factory, "jax")


@pytest.fixture
def found(request, state_and_what):
    """What was counted where the state of a test is."""
    framework = {"parameters": "of_torch", "jax arrays": "of_jax"}.get(state_and_what.partition(", ")[0], "of_numpy")
    return request.getfixturevalue(framework)


@pytest.mark.parametrize("state_and_what", CALLS)
def test_calls_for_each_value(found, state_and_what):
    assert found["calls"][state_and_what] <= CALLS[state_and_what]


@pytest.mark.parametrize("state_and_what", LATE)
def test_calls_for_each_value_whose_object_is_made_later(found, state_and_what):
    assert found["calls"][state_and_what] <= LATE[state_and_what]


@pytest.mark.parametrize("state_and_what", BYTES)
def test_memory_for_each_value(found, state_and_what):
    assert found["bytes"][state_and_what] <= BYTES[state_and_what]


@pytest.mark.parametrize("state_and_what", KEPT)
def test_memory_that_stays_for_each_value(found, state_and_what):
    assert found["kept"][state_and_what] <= KEPT[state_and_what]


@pytest.mark.parametrize("state_and_what", HASHED)
def test_bytes_of_checksums_for_each_value(found, state_and_what):
    assert 0 < found["hashed"][state_and_what] <= HASHED[state_and_what]


@pytest.mark.parametrize("state_and_what", CALLS)
def test_system_calls_do_not_depend_on_the_number_of_values(found, state_and_what):
    if "system calls" not in found:
        pytest.skip("this system does not count the system calls of a process")
    assert found["system calls"][state_and_what] <= SYSTEM_CALLS


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
