"""Boxes of tensors are read without the bytes between their parts, where the parts are long enough for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from milepost.bundle import Entry
from milepost.bundle.boxes import read_box
from milepost.bundle.held import FileInMemory
from milepost.storage.interface import Buffer
from milepost.tensor import DType


class Counting(FileInMemory):
    """Counts the bytes that are read."""

    count = 0

    def read_into(self, offset: int, buffer: Buffer) -> None:
        self.count += memoryview(buffer).nbytes
        super().read_into(offset, buffer)


ROWS = np.arange(4 * 8192, dtype=np.float32).reshape(4, 8192)


@pytest.mark.parametrize(
    ("box", "count"),
    [
        (((0, 4), (0, 8192)), ROWS.nbytes),
        (((1, 3), (0, 8192)), ROWS.nbytes // 2),
        (((0, 4), (5, 2053)), 4 * 8192),  # runs of 8 KiB are read alone
        (((0, 4), (5, 2052)), None),  # shorter ones together with what is between them
        (((2, 3), (5, 7)), 8),
        (((0, 0), (0, 8192)), 0),
    ],
)
def test_the_elements_and_the_bytes_that_are_read(box: Any, count: int | None) -> None:
    data = b"???" + ROWS.tobytes()
    file = Counting("file", data)
    entry = Entry(DType.of(ROWS), ROWS.shape, 0, 3, ROWS.nbytes, 0)
    target = np.empty([end - start for start, end in box], np.float32)
    read_box(file, entry, box, target, "key")
    expected = ROWS[tuple(slice(*extent) for extent in box)]
    np.testing.assert_array_equal(target, expected)
    assert file.count == count if count is not None else file.count > 4 * 8192
