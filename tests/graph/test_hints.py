"""Hints: what a restore needs besides the values, in the object graph."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from milepost.errors import CorruptCheckpointError
from milepost.graph.saved.hints import decode, encode

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
HINTS = st.one_of(
    NUMBERS.map(np.array),
    st.booleans().map(np.array),
    st.lists(NUMBERS, min_size=1, max_size=5).map(lambda each: np.array(each, np.int64)),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5).map(np.array),
    st.lists(st.booleans(), min_size=1, max_size=5).map(np.array),
)


@hypothesis.given(st.dictionaries(st.text(max_size=5), HINTS, max_size=3))
def test_hints_come_back(hints):
    found = decode(encode(hints))
    assert found.keys() == hints.keys()
    for name, array in hints.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_no_hints_are_no_text():
    assert encode({}) == ""
    assert decode("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[1]",
        '{"a": 1.5}',
        '{"a": [[1]]}',
        '{"a": [1, true]}',
        '{"a": null}',
        '{"a": 9223372036854775808}',
        '{"a": 1, "a": 2}',
        '{"a": [' + "1," * 40_000 + "1]}",
    ],
    ids=lambda text: text[:20],
)
def test_malformed_hints_are_damage(text):
    with pytest.raises(CorruptCheckpointError):
        decode(text)
