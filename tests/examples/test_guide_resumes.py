"""The losses that docs/keras.md shows are those that its script measures."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.examples.scripts import installed

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "images" / "guide_resumes.py"
TABLE = SCRIPT.with_suffix(".md").read_text()


def losses(table):
    """Columns of losses by the name at their head."""
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()]
    return {name: [float(row[number]) for row in rows[2:]] for number, name in enumerate(rows[0]) if number}


def test_the_page_has_the_table():
    assert TABLE in (ROOT / "docs" / "keras.md").read_text()


@pytest.mark.skipif(not installed("tensorflow"), reason="TensorFlow is not installed")
def test_the_script_measures_what_the_table_says(tmp_path):
    import keras

    if int(keras.__version__.partition(".")[0]) < 3:
        pytest.skip("it is Keras 3 under which TensorFlow's checkpoints do not resume")
    copy = tmp_path / SCRIPT.name
    copy.write_text(SCRIPT.read_text())
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "0"}
    run = subprocess.run([sys.executable, str(copy)], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    found, shown = losses(run.stdout), losses(TABLE)
    assert found["milepost"] == found["never stopped"]
    assert found["milepost"] == pytest.approx(shown["milepost"], rel=1e-3)
    assert max(found["tf.train.Checkpoint"][6:]) > 3 * max(found["milepost"][6:])
    assert re.search("<svg", copy.with_suffix(".svg").read_text())
