"""Which types have plain values."""

import numpy as np

from milepost.graph.plain.values import TYPE_NAMES


def test_numbers_and_text_of_python_and_numpy_have_names():
    assert (TYPE_NAMES[int], TYPE_NAMES[np.float16], TYPE_NAMES[np.str_]) == ("int", "numpy.float16", "numpy.str")


def test_quantised_numbers_are_no_plain_values():
    assert np.void not in TYPE_NAMES
