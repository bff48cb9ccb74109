"""Each selection takes the same from every kind of file, and the table in docs/partial.md says what."""

import pytest

for framework in ("torch", "safetensors", "flax", "orbax.checkpoint", "keras", "tf_keras", "tensorflow"):
    pytest.importorskip(framework)

from tests.interop import selections  # noqa: E402


def test_the_table_of_selections_is_true(tmp_path):
    assert selections.text(tmp_path) == selections.written()


@pytest.mark.parametrize(
    "make", [selections.torch_cases, selections.flax_cases, selections.keras_cases, selections.tensorflow_cases]
)
def test_the_table_holds_for_saves_too(tmp_path, make):
    """A checkpoint that was saved with a selection has what a restore with it takes of a whole one."""
    case = make()[0]
    assert case.title.endswith("milepost's own")
    (row,) = [line for line in selections.written().splitlines() if line.startswith(f"| {case.title} |")]
    selected = selections.SELECTIONS[:-1]  # the last one renames
    found = [selections.cell_of_save(case, tmp_path, selection) for selection in selected]
    assert found == row.strip("| ").split(" | ")[1:-1]
