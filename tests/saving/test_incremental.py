"""Which data files of an earlier checkpoint are worth to be linked. What saves share is tested in `tests/checkpoint/test_incremental.py`."""

from __future__ import annotations

import numpy as np
import pytest

from milepost.bundle import Entry
from milepost.bundle.held import FileInMemory
from milepost.bundle.unchanged import Candidate
from milepost.saving.incremental import _worth_linking
from milepost.tensor import DType


def candidate(shard: int, used: int, size: int = 100) -> Candidate:
    """An unchanged tensor of some bytes in a data file of a size."""
    array = np.zeros(used, np.uint8)
    entry = Entry(DType.of(array), array.shape, shard, 0, used, 0)
    return Candidate(array, FileInMemory(f"file {shard}", bytes(size)), entry)


def test_at_most_32_files_are_linked_those_with_most_unchanged_bytes() -> None:
    unchanged = {number: candidate(number, 51 + number) for number in range(40)}
    assert _worth_linking(unchanged) == list(range(8, 40))


@pytest.mark.parametrize(("used", "is_worth"), [(49, False), (50, True), (51, True)])
def test_at_least_half_of_a_file_must_be_unchanged(used: int, is_worth: bool) -> None:
    assert _worth_linking({7: candidate(3, used)}) == ([3] if is_worth else [])
    assert _worth_linking({7: candidate(3, used - 20), 8: candidate(3, 20)}) == ([3] if is_worth else [])
