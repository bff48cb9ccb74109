"""A tree of tensors alone is listed without items. It has the keys that items would have."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.foreign.items import items_of, tensors_alone, walked
from milepost.foreign.stored import Stored
from milepost.tensor import DType, TensorSpec

SPEC = TensorSpec(DType.of(np.float32), (2,))
TENSORS = st.builds(lambda: Stored(SPEC, None))
NAMES = st.text("ab./", max_size=3)


def dicts(names, values):
    return st.recursive(values, lambda inner: st.dictionaries(names, inner, max_size=4), max_leaves=8)


def listed(tree, dotted):
    return {each.key: each.value for each in walked(items_of(tree, dotted=dotted)) if isinstance(each.value, Stored)}


@pytest.mark.parametrize("dotted", [True, False])
@given(tree=st.dictionaries(NAMES, dicts(NAMES, TENSORS | st.just(1.0)), max_size=4))
def test_keys_are_those_of_items(tree, dotted):
    found = tensors_alone(tree, dotted=dotted)
    assert found is None or found == listed(tree, dotted)


@pytest.mark.parametrize("dotted", [True, False])
@given(
    tree=st.dictionaries(st.text("ab.", max_size=3), dicts(st.text("ab.", max_size=3), TENSORS), min_size=1, max_size=4)
)
def test_names_without_slashes_need_no_items(tree, dotted):
    pending = [tree]
    for level in pending:
        pending += [each for each in level.values() if isinstance(each, dict)]
    assert (tensors_alone(tree, dotted=dotted) is None) == any(not level for level in pending)


@pytest.mark.parametrize(
    "tree",
    [
        {"a": {"b/c": Stored(SPEC, None), "b": {"c": Stored(SPEC, None)}}},
        {"a/b": Stored(SPEC, None), "a": {"b": Stored(SPEC, None)}},
    ],
)
def test_paths_that_are_the_same_text_are_left_to_items(tree):
    assert tensors_alone(tree, dotted=False) is None
    assert len(listed(tree, dotted=False)) == 2


@pytest.mark.parametrize("other", [1.0, None, [], {}, "text"])
def test_anything_else_needs_items(other):
    assert tensors_alone({"a": {"b": Stored(SPEC, None), "c": other}}, dotted=False) is None


def test_a_dict_that_holds_itself_is_left_to_items():
    tree = {"a": Stored(SPEC, None)}
    tree["b"] = tree
    assert tensors_alone(tree, dotted=False) is None


def test_a_dict_that_is_in_very_many_places_is_left_to_items():
    tree = {str(number): Stored(SPEC, None) for number in range(10)}
    for _ in range(7):
        tree = {str(number): tree for number in range(10)}
    assert tensors_alone(tree, dotted=False) is None


@pytest.mark.parametrize("dotted", [True, False])
def test_too_many_levels_are_left_to_items(dotted):
    tree = Stored(SPEC, None)
    for _ in itertools.repeat(None, 101):
        tree = {"a": tree}
    assert tensors_alone(tree, dotted=dotted) is None
    assert tensors_alone(tree["a"], dotted=dotted) == listed(tree["a"], dotted)
