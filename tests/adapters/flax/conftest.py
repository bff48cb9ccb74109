"""What holds for all tests of Flax's objects."""

import pytest


@pytest.fixture
def path(tmp_path):
    """Where a test may save."""
    return tmp_path / "ckpt"
