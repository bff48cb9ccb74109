"""Some rows of the table of runs that go on, with every trainer; the whole table takes too long for a test."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.notes import Notes
from tests.once import computed_once
from tests.zoo_fit.results import run_all
from tests.zoo_fit.rows import rows
from tests.zoo_fit.table import PARTLY, cells
from tests.zoo_fit.trainers import TRAINERS, installed

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "keras_fit_coverage.md"
TRIED = [
    "data: arrays, shuffled",
    "data: `DataLoader` with `generator`",
    "data: iterable that counts its passes",
    "data: iterable, the same in each pass",
    "callbacks: a limit of steps in mid-epoch, arrays, milepost's last",
    "interruptions: exception before milepost's while catching up, fit() again",
]
TESTED = [row for row in rows() if str(row) in TRIED]
# The first test waits for all of them.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    return computed_once(tmp_path_factory, "zoo_fit", lambda: run_all(*TRIED))


def published(row):
    """The cells of a row of the page, without references to notes, and without how many places were tried."""
    if not PAGE.exists():
        pytest.skip("the table is not written yet: run python -m tests.zoo_fit.table > docs/keras_fit_coverage.md")
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row.name} |"))
    return [verdict(cell) for cell in line.strip("|").split("|")[1:]]


def verdict(cell):
    return re.sub(r" \[\d+\]$", "", cell.strip()).removesuffix(PARTLY)


@pytest.mark.parametrize("trainer", list(TRAINERS))
@pytest.mark.parametrize("row", TESTED, ids=str)
def test_a_run_that_is_interrupted_goes_on_as_if_nothing_had_happened(results, row, trainer):
    if trainer not in installed():
        pytest.skip(f"{trainer} is not installed")
    result = results[trainer][str(row)]
    if result["verdict"] == "—":
        pytest.skip(result["why"])
    assert result["verdict"] == "equal", result


@pytest.mark.parametrize("row", TESTED, ids=str)
def test_the_published_table_is_current(results, row):
    page = published(row)
    if installed() != list(TRAINERS) or f"With Keras {version('keras')} on" not in PAGE.read_text():
        pytest.skip("the published table is of other versions")
    found = [verdict(cell) for cell in cells(row, results, Notes())]
    assert page == found, "run: python -m tests.zoo_fit.table > docs/keras_fit_coverage.md"


def test_every_row_that_is_tried_is_in_the_table():
    assert len(TESTED) == len(TRIED)


@pytest.mark.parametrize("row", list(rows()), ids=str)
def test_no_cell_differs_in_silence(row):
    assert not any("DIFFERS" in cell for cell in published(row)), published(row)


def test_what_is_inexact_is_said_where_the_table_says():
    pages = " ".join((DOCS / "keras_fit.md").read_text().split())
    assert [row.said for row in rows() if row.said and row.said not in pages] == []
