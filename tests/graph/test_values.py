"""Which types have plain values."""

import numpy as np
import pytest

from milepost.graph.plain.values import TYPE_NAMES, from_saved


def test_numbers_and_text_of_python_and_numpy_have_names():
    assert (TYPE_NAMES[int], TYPE_NAMES[np.float16], TYPE_NAMES[np.str_]) == ("int", "numpy.float16", "numpy.str")


def test_quantised_numbers_are_no_plain_values():
    assert np.void not in TYPE_NAMES


@pytest.mark.parametrize(
    ("saved_as", "live", "expected"),
    [("bytes", "", b"ab"), ("str", b"", "ab"), ("", b"", b"ab"), ("", "", "ab"), ("int", 0, 0xAB)],
)
def test_the_saved_type_decides_and_then_the_live_one(saved_as, live, expected):
    found = from_saved(np.array(b"ab", object), saved_as, live)
    assert (found, type(found)) == (expected, type(expected))
