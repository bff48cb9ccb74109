"""Files that TensorFlow 1.15 wrote (see tests/data/tf115), restored into live objects by name; no TensorFlow needed."""

from pathlib import Path

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, Module, Variable
from tests.data.tf115.generate import partitioned, values

DATA = Path(__file__).parent.parent / "data" / "tf115"
NAMES = sorted(name for name in {**values(), **partitioned()} if not name.startswith("numbers/q"))


def expected(name):
    return values()[name] if name in values() else partitioned()[name][0]


@pytest.mark.parametrize("kind", ["v1", "v1_sharded", "v2", "v2_sharded"])
def test_every_variable_is_restored_by_its_name(kind):
    live = {
        name: Variable(np.zeros_like(expected(name)), name=name) for name in NAMES if expected(name).dtype != object
    }
    live["text"] = Variable(np.full(4, b"", object), name="text")
    Checkpoint(variables=live).restore(DATA / kind / "ckpt").assert_consumed()
    for name, variable in live.items():
        np.testing.assert_array_equal(variable, expected(name))


def test_an_estimators_directory_is_restored_by_name():
    truth = np.load(DATA / "estimator.npz")
    live = Module()
    live.variables_by_name = {name: Variable(np.zeros_like(truth[name]), name=name) for name in truth.files}
    latest = milepost.latest_checkpoint(DATA / "estimator")
    Checkpoint(live).restore(latest).assert_consumed()
    for name in truth.files:
        np.testing.assert_array_equal(live.variables_by_name[name], truth[name])
