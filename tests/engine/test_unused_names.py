"""What is said of arguments that name nothing."""

import numpy as np

from milepost.engine.unused_names import UnusedNames
from tests.bundle.bundles import bundle


def test_each_thing_is_said_once():
    told = []
    unused = UnusedNames(told.append)
    unused.expect_nothing()
    unused.expect_replacing()
    unused.asked(is_kept=False)
    with bundle({"a": np.zeros(2)}) as reader:
        for _ in range(2):
            unused.warn(reader, lambda name: name, None)
    assert len(told) == len(set(told)) == 3
