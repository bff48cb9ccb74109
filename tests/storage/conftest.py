"""Where tests of storages save: on the disk, as programs do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory on the disk, also where other tests save to memory."""
    disk = os.environ["MILEPOST_TESTS_DISK"]
    with tempfile.TemporaryDirectory(prefix="milepost-", dir=disk, ignore_cleanup_errors=True) as directory:
        yield Path(directory).resolve()
