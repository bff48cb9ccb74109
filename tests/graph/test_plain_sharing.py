"""Objects that stand in several places of plain state."""

import json
from collections import deque

import numpy as np
import pytest

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import TEXT, pack


@pytest.mark.parametrize(
    "shared",
    [[1], {"a": 1}, {1, 2}, deque([1]), bytearray(b"ab"), np.arange(3), [{"inner": [1]}]],
    ids=lambda value: type(value).__name__,
)
def test_what_can_change_and_stands_in_two_places_stays_one(shared):
    state = unpack(pack({"first": shared, "others": (shared, [shared])}))
    assert state["first"] is state["others"][0] is state["others"][1][0]
    np.testing.assert_equal(state["first"], shared)


def test_one_object_inside_two_others_stays_one():
    inner = [1]
    first, second = unpack(pack([[inner], {"inner": inner}]))
    assert first[0] is second["inner"]


def test_what_is_equal_and_not_one_stays_apart():
    first, second = unpack(pack([[1], [1]]))
    assert first is not second


def test_text_of_a_state_that_shares_nothing_is_as_it_was():
    assert pack([[1], (2,), (2,), "a", "a"])[TEXT].item() == (
        b'[[1], {"!": "tuple", "items": [2]}, {"!": "tuple", "items": [2]}, "a", "a"]'
    )


def test_sets_of_what_is_shared_are_read_in_the_order_in_which_they_were_written():
    shared = np.arange(2)
    holder = np.empty(1, object)
    holder[0] = shared
    state = unpack(pack({"set": {1, 2}, "holder": holder, "shared": shared}))
    assert state["holder"][0] is state["shared"]
    assert state["set"] == {1, 2}


def nested(levels):
    state = [0]
    for _ in range(levels):
        state = [state, state]
    return state


def test_a_state_that_would_take_forever_to_go_through_is_refused():
    with pytest.raises(UnsupportedError, match="references"):
        pack(nested(40))


def test_a_text_that_would_take_forever_to_go_through_is_refused():
    text = {"!": "shared", "id": 0, "value": [0]}
    for number in range(1, 40):
        text = {"!": "shared", "id": number, "value": [text, {"!": "shared", "id": number - 1}]}
    with pytest.raises(CorruptCheckpointError, match="references"):
        unpack({TEXT: np.array(json.dumps(text).encode(), object)})


@pytest.mark.parametrize(
    "text",
    [
        '{"!": "shared", "id": 0}',
        '{"!": "shared"}',
        '{"!": "shared", "id": [], "value": 1}',
        '{"!": "shared", "id": 0, "value": {"!": "shared", "id": 0}}',
        '[{"!": "shared", "id": 0, "value": 1}, {"!": "shared", "id": 0, "value": 1}]',
    ],
)
def test_references_to_what_is_not_there_are_errors(text):
    with pytest.raises(CorruptCheckpointError):
        unpack({TEXT: np.array(text.encode(), object)})
