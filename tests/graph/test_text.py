"""Python's text as values."""

import pytest

from milepost.errors import MismatchError
from milepost.graph.text import text_like, text_value
from milepost.tensor.dtype import STRING


@pytest.mark.parametrize("text", ["schön", b"sch\xc3\xb6n"])
def test_text_is_a_string_in_utf_8_which_tensorflow_skips(text):
    value = text_value(text)
    assert (value.name, value.dtype, value.shape) == ("VARIABLE_VALUE", STRING, ())
    assert value.read().item() == b"sch\xc3\xb6n"
    assert value.skipped_by_tensorflow


@pytest.mark.parametrize("text", ["schön", b"\xff"])
def test_text_comes_back_in_the_type_of_the_live_one(text):
    assert text_like(type(text)(), text_value(text).read()) == text


def test_bytes_that_are_no_text_do_not_fit_a_str():
    with pytest.raises(MismatchError, match="not UTF-8"):
        text_like("", text_value(b"\xff").read())
