"""What holds for all tests of JAX's objects."""

import pytest


@pytest.fixture
def path(tmp_path):
    """Where a test may save."""
    return str(tmp_path / "ckpt")
