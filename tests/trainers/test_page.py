"""The code on the page about trainers runs where the trainers are."""

from __future__ import annotations

from pathlib import Path

from tests import test_project


def test_its_code_runs(tmp_path: Path, monkeypatch):
    page = test_project.ROOT / "docs" / "trainers.md"
    test_project.TestDocumentation().test_code_blocks_run(page, tmp_path, monkeypatch)
