"""What holds for all tests of checkpoints."""

import pytest


@pytest.fixture
def prefix(tmp_path):
    """Where a test may save."""
    return str(tmp_path / "ckpt")
