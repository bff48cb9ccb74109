"""What is remembered of live objects by identity."""

import numpy as np
import pytest

from milepost import Variable
from milepost.deferred.identity import Bindings, any_restore_since, last_restore, remember_restore, uids
from milepost.graph.plain.places import PlainLeaf

KINDS = {
    "variable": lambda: Variable(np.float32(0)),
    "place": lambda: PlainLeaf(None, "x"),  # it holds the number itself
    "scalar": lambda: np.float32(0),  # it allows no weak reference
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_that_an_object_had_before_is_returned(kind):
    """A restore that fails gives each object its number back."""
    obj, earlier, later = KINDS[kind](), Bindings(next(uids)), Bindings(next(uids))
    assert remember_restore(obj, earlier.uid, earlier) == 0
    assert remember_restore(obj, later.uid, later) == earlier.uid
    assert last_restore(obj) == later.uid


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_known_whether_any_object_has_values_of_a_restore_or_a_later_one(kind):
    uid = next(uids)
    assert not any_restore_since(uid)
    obj, bindings = KINDS[kind](), Bindings(uid)
    remember_restore(obj, uid, bindings)
    assert any_restore_since(uid)
    assert not any_restore_since(next(uids))
