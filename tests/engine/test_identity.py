"""What is remembered of live objects by identity."""

import numpy as np

from milepost import Variable
from milepost.engine.identity import last_restore, last_restores, remember_restore
from milepost.graph.plain.places import PlainLeaf


def test_the_newest_restores_of_many_objects_are_those_of_each():
    """Also of places, which hold the number themselves: a restore that fails gives each its number back."""
    objs = [Variable(np.float32(0)), PlainLeaf(None, "x"), PlainLeaf(None, "y"), np.zeros(2)]
    for number, obj in enumerate(objs[:2], start=1):
        remember_restore(obj, number)
    assert last_restores(objs) == [last_restore(obj) for obj in objs] == [1, 2, 0, 0]
