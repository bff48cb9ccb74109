"""The guide in JAX prints the guide's lines, and what it wrote is TensorFlow's format."""

import pytest

from tests.examples.guide import Guide
from tests.examples.scripts import EXAMPLES, run

pytest.importorskip("jax")
pytest.importorskip("optax")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("guide_jax")
    return directory, run(EXAMPLES / "guide_jax.py", directory, "jax", "optax")


class TestGuide(Guide):
    """The script in this framework."""


def test_parameters_alone_are_restored_from_their_shapes(ran):
    assert ran[1][-1] == "2 arrays restored from ./easy_checkpoint"
