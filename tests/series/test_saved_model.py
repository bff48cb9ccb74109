"""What is said about a directory that holds versions of a SavedModel."""

import pytest

from milepost.series.saved_model import versions_in, versions_remedy
from milepost.storage import MemoryStorage


@pytest.mark.parametrize("count", [1, 2, 5, 6, 12])
def test_the_newest_versions_are_named(count):
    named = ", ".join(repr(str(number)) for number in range(count, max(count - 5, 0), -1))
    found = versions_remedy([str(number) for number in range(1, count + 1)])
    assert found == f"pass the version that you want, the newest first: {named}" + (", ..." if count > 5 else "")


def test_a_directory_without_versions_has_none():
    assert versions_in(MemoryStorage(), "models") == []
