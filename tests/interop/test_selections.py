"""Each selection takes the same from every kind of file, and the table in docs/partial.md says what."""

import pytest

for framework in ("torch", "safetensors", "flax", "orbax.checkpoint", "keras", "tf_keras", "tensorflow"):
    pytest.importorskip(framework)

from tests.interop import selections  # noqa: E402


def test_the_table_of_selections_is_true(tmp_path):
    assert selections.text(tmp_path) == selections.written()
