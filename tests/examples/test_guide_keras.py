"""The guide in Keras 3 prints the guide's lines on every backend, and what it wrote is TensorFlow's format."""

import pytest

from tests.examples.guide import Guide
from tests.examples.scripts import EXAMPLES, installed, run

pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")


@pytest.fixture(scope="module", params=["tensorflow", "jax", "torch"])
def ran(request, tmp_path_factory):
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    directory = tmp_path_factory.mktemp(f"guide_{request.param}")
    return directory, run(EXAMPLES / "guide_keras.py", directory, "keras", request.param, KERAS_BACKEND=request.param)


class TestGuide(Guide):
    """The script in this framework."""


def test_models_with_layers_in_attributes_and_in_lists_are_restored_whole(ran):
    assert ran[1][-2:] == [
        "Net: 2 weights restored from ./easy_checkpoint",
        "Stack: 4 weights restored from ./stack_checkpoint",
    ]
