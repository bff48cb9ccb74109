"""Keys: names of tensors from paths of objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.graph.keys import child_path, escape, slot_path, tensor_key, unescape


@pytest.mark.parametrize(
    ("name", "escaped"),
    [("kernel", "kernel"), ("a.b", "a..b"), ("a/b", "a.Sb"), (".S", "..S"), ("", ""), ("ä/ö", "ä.Sö")],
)
def test_dots_are_doubled_and_slashes_become_dot_s(name, escaped):
    assert escape(name) == escaped


@given(st.text())
def test_unescape_undoes_escape(name):
    assert unescape(escape(name)) == name


@given(st.text(), st.text())
def test_different_names_have_different_escaped_names(a, b):
    assert (escape(a) == escape(b)) == (a == b)


@given(st.text())
def test_an_escaped_name_contains_no_slash(name):
    assert "/" not in escape(name)


def test_an_empty_edge_name_is_not_the_root():
    assert child_path("", "", is_root=True) == ""
    assert child_path("m", "", is_root=False) == "m/"


def test_a_root_variable_has_a_key_that_begins_with_a_slash():
    assert tensor_key("", "VARIABLE_VALUE") == "/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_slot_is_named_after_variable_optimizer_and_slot():
    assert slot_path("net/l1/kernel", "optimizer", "m") == "net/l1/kernel/.OPTIMIZER_SLOT/optimizer/m"
