"""Two tensors of one checkpoint are equal if they have the same type, shape and elements, however each was saved."""

import numpy as np
import pytest

from milepost.bundle.equality import are_equal
from tests.bundle.bundles import bundle

X = np.arange(12.0).reshape(3, 4)
CHANGED = X.copy()
CHANGED[2, 3] = 0
TEXTS = np.array([b"a", b"bc"], object)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (X, True),
        (CHANGED, False),
        (X.astype(np.float32), False),
        (X.reshape(4, 3), False),
        (((3, 4), {"0,2:0,4": X[:2], "2,1:-": X[2:]}), True),
        (((3, 4), {"0,2:0,4": X[:2], "2,1:-": CHANGED[2:]}), False),
    ],
    ids=["equal", "changed", "other type", "other shape", "in pieces", "changed in pieces"],
)
def test_numbers(other, equal):
    reader = bundle({"x": X, "other": other})
    assert are_equal(reader, "x", "other") is equal
    assert are_equal(reader, "other", "x") is equal


@pytest.mark.parametrize(("other", "equal"), [([b"a", b"bc"], True), ([b"ab", b"c"], False)])
def test_text(other, equal):
    assert are_equal(bundle({"x": TEXTS, "other": np.array(other, object)}), "x", "other") is equal


def test_what_is_no_number_is_equal_bit_by_bit():
    assert are_equal(bundle({"x": np.float32([np.nan, 0]), "other": np.float32([np.nan, 0])}), "x", "other")
    assert not are_equal(bundle({"x": np.float32([0.0]), "other": np.float32([-0.0])}), "x", "other")


def test_two_pieces_that_were_cut_otherwise():
    pieces = {"x": ((3, 4), {"0,2:-": X[:2], "2,1:-": X[2:]}), "other": ((3, 4), {"0,1:-": X[:1], "1,2:-": X[1:]})}
    assert are_equal(bundle(pieces), "x", "other")
