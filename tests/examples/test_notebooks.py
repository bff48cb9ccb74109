"""Notebooks show what their cells give, and nothing of the machine on which they were run."""

import json
import re
import tempfile
import warnings

import pytest

from tests.examples.notebook import executed, read, write
from tests.examples.scripts import EXAMPLES

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
CHANGING = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[\d.]+ KiB"
"""The times of saves, and the sizes of pages, which hang on the version of zlib."""

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs(notebook):
    """The source of each cell, and what it shows."""
    text = json.dumps([(cell["source"], cell.get("outputs")) for cell in notebook["cells"]])
    return json.loads(re.sub(CHANGING, "...", text))


def code(path):
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def test_there_is_one():
    assert "looking_inside" in [path.stem for path in NOTEBOOKS]


@each_notebook
def test_its_cells_give_what_it_shows(path, tmp_path, monkeypatch):
    """``python -m tests.examples.notebook`` writes anew what it shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = executed(read(path))
    assert outputs(found) == outputs(read(path))


@each_notebook
def test_its_cells_were_run_in_their_order(path):
    counts = [cell["execution_count"] for cell in code(path)]
    assert counts == list(range(1, len(counts) + 1))


@each_notebook
def test_it_names_no_place_of_a_machine(path):
    assert re.findall(r"(?<![\w<:/.])/\w+", json.dumps([cell["outputs"] for cell in code(path)])) == []


@each_notebook
def test_it_says_nothing_about_the_program_that_ran_it(path):
    notebook = read(path)
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    assert [cell["id"] for cell in notebook["cells"] if cell["metadata"]] == []


@each_notebook
def test_it_is_written_as_jupyter_writes_it(path, tmp_path):
    write(tmp_path / "copy.ipynb", read(path))
    assert (tmp_path / "copy.ipynb").read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
