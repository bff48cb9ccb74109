"""Wrapped lists, dicts and tuples behave like what they wrap, and tell of what was changed behind their back."""

import collections
import copy
import heapq
import json
import pickle
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from milepost import Checkpoint, Module, NoDependency, UntrackableError, Variable
from milepost.graph import DictWrapper, ListWrapper, OrderedDictWrapper
from milepost.graph.containers import agree, find_trackable


class Point(NamedTuple):
    x: object
    y: object


def tracked(value):
    module = Module()
    module.value = value
    return module.value


def test_lists_and_dicts_are_wrapped_when_they_are_assigned():
    assert type(tracked([])) is ListWrapper
    assert type(tracked({})) is DictWrapper
    assert type(tracked(collections.OrderedDict())) is OrderedDictWrapper


def test_members_are_wrapped_too_at_any_depth():
    value = tracked([{"a": [1]}, (2, [3])])
    assert type(value[0]) is DictWrapper
    assert type(value[0]["a"]) is ListWrapper
    assert type(value[1]) is tuple
    assert type(value[1][1]) is ListWrapper


def test_tuples_without_lists_stay_the_same_object():
    point = Point(Variable(1), 2)
    assert tracked(point) is point


def test_named_tuples_keep_their_type():
    value = tracked(Point([1], 2))
    assert type(value) is Point
    assert type(value.x) is ListWrapper


def test_other_containers_are_left_alone():
    class Special(list):
        pass

    for value in (Special(), set(), collections.deque(), collections.defaultdict(list), collections.Counter()):
        assert tracked(value) is value


def test_a_wrapper_that_is_assigned_again_stays_the_same():
    value = tracked([1])
    assert tracked(value) is value


def test_a_list_that_holds_itself_is_wrapped_once():
    loop = [1]
    loop.append(loop)
    value = tracked(loop)
    assert value[1] is value


def test_wrappers_are_printed_as_the_guide_prints_them():
    assert repr(tracked([1, "a"])) == str(tracked([1, "a"])) == "ListWrapper([1, 'a'])"
    assert repr(tracked({"a": 1})) == "DictWrapper({'a': 1})"
    assert str(tracked({"a": 1})) == "{'a': 1}"
    ordered = collections.OrderedDict(a=1)
    assert repr(tracked(ordered)).startswith("DictWrapper(OrderedDict(")


def test_wrappers_are_what_they_wrap():
    assert isinstance(tracked([]), list)
    assert isinstance(tracked({}), dict)
    assert isinstance(tracked(collections.OrderedDict()), collections.OrderedDict)


plain = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain)
def test_wrappers_equal_what_they_wrap_in_both_directions(value):
    assert tracked(value) == value
    assert value == tracked(value)


@given(plain)
def test_wrappers_are_the_same_json(value):
    assert json.dumps(tracked(value)) == json.dumps(value)
    assert json.dumps(tracked(value), indent=1) == json.dumps(value, indent=1)


@given(plain)
def test_wrappers_survive_pickling_and_copying(value):
    wrapped = tracked(value)
    for twin in (pickle.loads(pickle.dumps(wrapped)), copy.copy(wrapped), copy.deepcopy(wrapped)):
        assert twin == value
        assert type(twin) is type(wrapped)


def test_a_deep_copy_shares_no_members():
    wrapped = tracked([[1]])
    copy.deepcopy(wrapped)[0].append(2)
    assert wrapped == [[1]]


def test_a_copied_wrapper_still_tracks():
    twin = copy.deepcopy(tracked([]))
    twin.append([1])
    assert type(twin[0]) is ListWrapper


def test_slices_and_sums_are_plain_lists():
    wrapped = tracked([1, 2, 3])
    assert type(wrapped[1:]) is list
    assert wrapped[1:] == [2, 3]
    assert wrapped.__add__([4]) == [1, 2, 3, 4]
    assert [0].__add__(wrapped) == [0, 1, 2, 3]
    assert wrapped * 2 == [1, 2, 3, 1, 2, 3]


def test_wrappers_are_unhashable():
    for value in ([], {}):
        with pytest.raises(TypeError):
            hash(tracked(value))


def test_sorting_takes_a_key():
    wrapped = tracked([3, 1, 2])
    wrapped.sort(key=lambda n: -n)
    assert wrapped == [3, 2, 1]
    assert sorted(wrapped) == [1, 2, 3]


def test_no_dependency_stores_the_value_itself():
    plain_list = [1]
    assert tracked(NoDependency(plain_list)) is plain_list
    wrapped = tracked({})
    wrapped["a"] = NoDependency(plain_list)
    assert wrapped["a"] is plain_list
    wrapped = tracked([NoDependency(plain_list)])
    assert wrapped[0] is plain_list


def test_ordered_dicts_compare_by_order():
    one = tracked(collections.OrderedDict([("a", 1), ("b", 2)]))
    assert one != collections.OrderedDict([("b", 2), ("a", 1)])
    one.move_to_end("a")
    assert list(one) == ["b", "a"]


class ListsAlike(RuleBasedStateMachine):
    """Any sequence of operations has the same effect on a wrapper as on a list."""

    def __init__(self):
        super().__init__()
        self.plain = [3, 1, 2]
        self.wrapped = tracked([3, 1, 2])

    def both(self, operation):
        outcomes = []
        for each in (self.plain, self.wrapped):
            try:
                outcomes.append(operation(each))
            except (IndexError, ValueError, TypeError) as error:
                outcomes.append(type(error))
        assert outcomes[0] is outcomes[1] is self or outcomes[0] == outcomes[1]

    @rule(item=st.integers(0, 5))
    def append(self, item):
        self.both(lambda each: each.append(item))

    @rule(items=st.lists(st.integers(0, 5), max_size=3))
    def extend(self, items):
        self.both(lambda each: each.extend(items))

    @rule()
    def extend_with_itself(self):
        if len(self.plain) < 50:
            self.both(lambda each: each.extend(each))

    @rule(index=st.integers(-5, 5), item=st.integers(0, 5))
    def insert(self, index, item):
        self.both(lambda each: each.insert(index, item))

    @rule(index=st.integers(-5, 5), item=st.integers(0, 5))
    def set_item(self, index, item):
        self.both(lambda each: each.__setitem__(index, item))

    @rule(start=st.integers(-5, 5), stop=st.integers(-5, 5), items=st.lists(st.integers(0, 5), max_size=3))
    def set_slice(self, start, stop, items):
        self.both(lambda each: each.__setitem__(slice(start, stop), items))

    @rule(index=st.integers(-5, 5))
    def pop(self, index):
        self.both(lambda each: each.pop(index))

    @rule(start=st.integers(-5, 5), stop=st.integers(-5, 5))
    def delete_slice(self, start, stop):
        self.both(lambda each: each.__delitem__(slice(start, stop)))

    @rule(item=st.integers(0, 5))
    def remove(self, item):
        self.both(lambda each: each.remove(item))

    @rule()
    def sort(self):
        self.both(lambda each: each.sort())

    @rule()
    def reverse(self):
        self.both(lambda each: each.reverse())

    @rule(count=st.integers(0, 2))
    def multiply(self, count):
        if len(self.plain) < 50:
            self.plain *= count
            self.wrapped *= count

    @invariant()
    def same(self):
        assert self.plain == self.wrapped
        assert type(self.wrapped) is ListWrapper


class DictsAlike(RuleBasedStateMachine):
    """Any sequence of operations has the same effect on a wrapper as on a dict."""

    def __init__(self):
        super().__init__()
        self.plain = {"a": 1}
        self.wrapped = tracked({"a": 1})

    keys = st.sampled_from(["a", "b", "c", 1])

    def both(self, operation):
        outcomes = []
        for each in (self.plain, self.wrapped):
            try:
                outcomes.append(operation(each))
            except KeyError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule(key=keys, value=st.integers())
    def set_item(self, key, value):
        self.both(lambda each: each.__setitem__(key, value))

    @rule(key=keys)
    def delete(self, key):
        self.both(lambda each: each.__delitem__(key))

    @rule(key=keys)
    def pop(self, key):
        self.both(lambda each: each.pop(key))

    @rule()
    def popitem(self):
        self.both(lambda each: each.popitem())

    @rule(key=keys)
    def setdefault(self, key):
        self.both(lambda each: each.setdefault(key, 7))

    @rule(others=st.dictionaries(keys, st.integers()))
    def update(self, others):
        self.both(lambda each: each.update(others, c=3))

    @rule(others=st.dictionaries(keys, st.integers()))
    def merge(self, others):
        self.plain |= others
        self.wrapped |= others

    @rule()
    def clear(self):
        self.both(lambda each: each.clear())

    @invariant()
    def same(self):
        assert list(self.plain.items()) == list(self.wrapped.items())
        assert type(self.wrapped) is DictWrapper


TestListsAlike = ListsAlike.TestCase
TestDictsAlike = DictsAlike.TestCase


@pytest.mark.parametrize("around", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: (inner,)])
def test_more_levels_than_python_can_follow_are_refused(around):
    nested = 1
    for _ in range(20_000):
        nested = around(nested)
    with pytest.raises(UntrackableError, match="nested more deeply than Python can follow"):
        Checkpoint(held=nested)
    checkpoint = Checkpoint(held=[1])
    with pytest.raises(UntrackableError, match="nested more deeply than Python can follow"):
        checkpoint.held = nested
    assert checkpoint.held == [1]


def test_a_search_goes_on_after_what_is_known_and_what_was_seen():
    variable, known = Variable(1.0), Variable(2.0)
    twice = [known]
    assert find_trackable([twice, twice, known, variable], known={id(known)}) is variable


def test_only_views_are_brought_to_the_same_members():
    plain = [1]
    agree(plain)
    assert plain == [1]


def test_a_member_that_c_code_has_added_to_a_view_is_its_last():
    program = [1, 2]
    view = Checkpoint(members=program).members
    heapq.heappush(view, 3)
    assert view[-1] == 3
