"""Some rows of the table of trainers, at a few moments; the whole table takes too long for a test."""

from __future__ import annotations

import pytest

pytest.importorskip("lightning.pytorch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("ignite")

from tests.test_project import ROOT
from tests.zoo_trainers.results import TRAINERS, rows
from tests.zoo_trainers.table import published
from tests.zoo_trainers.verdicts import FEW, verdict

TRIED = [
    ("Lightning", "`CombinedLoader`: `max_size_cycle`, the longer one without length"),
    ("Lightning", "`BackboneFinetuning`"),
    ("Hugging Face `Trainer`", "data without length, `gradient_accumulation_steps=4`"),
    ("Accelerate", "`zip()` with a longer loader"),
    ("ignite", "`Average` among the objects"),
    ("Loops with `DataPosition`", "a loader that begins again when it has ended"),
]
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("trainer", "name"), TRIED)
def test_a_run_that_is_killed_several_times_computes_the_same_bits(trainer, name):
    result = verdict(rows(trainer)[name], FEW)
    assert result["verdict"] == "equal", result
    assert published()[trainer, name] == "equal"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_page_has_every_row(trainer):
    assert [row for section, row in published() if section == trainer] == list(rows(trainer))


def test_each_trainer_has_many_rows():
    assert {trainer: len(rows(trainer)) for trainer in TRAINERS if len(rows(trainer)) < 15} == {}


def test_nothing_differs_in_silence():
    assert [row for row, said in published().items() if said == "DIFFERS"] == []


def test_what_is_inexact_is_said_on_the_pages():
    pages = " ".join(" ".join((ROOT / "docs" / name).read_text().split()) for name in ("trainers.md", "data.md"))
    said = [row.said for trainer in TRAINERS for row in rows(trainer).values() if row.said]
    assert [each for each in said if each not in pages] == []
