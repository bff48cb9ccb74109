"""How the entries of a warning are listed."""

from milepost.engine.unasked import listed


def test_each_entry_has_a_line():
    assert listed(["a", "b"]) == "\n  a\n  b"
