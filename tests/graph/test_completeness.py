"""What a save would leave out of trees."""

from functools import partial

import pytest

from milepost import Variable
from milepost.graph.completeness import Untaken, omission_of


@pytest.mark.parametrize(("in_tree", "count"), [(True, 1), (False, 0)])
def test_a_variable_that_a_partial_in_a_tree_holds_is_left_out(in_tree, count):
    found = list(omission_of(Untaken(partial(max, Variable(1.0)), "x", False, in_tree, False), ()))
    assert [omitted.doubtful for omitted in found] == [True] * count
