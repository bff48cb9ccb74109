"""The page for those who come from Orbax names everything that its manager has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")
ocp: Any = pytest.importorskip("orbax.checkpoint")
PAGE = Path(__file__).parents[3] / "docs" / "jax.md"


@pytest.fixture(scope="module")
def left() -> str:
    """The first column of the tables, which is Orbax'."""
    section = PAGE.read_text().partition("### Coming from Orbax")[2].partition("\n## ")[0]
    return "\n".join(row.split(" | ")[0] for row in section.splitlines() if row.startswith("| "))


def test_every_method_of_its_manager_is_there(left: str) -> None:
    """With what to write instead; properties count."""
    methods = [name for name in dir(ocp.CheckpointManager) if not name.startswith("_")]
    assert [name for name in methods if not re.search(rf"\bmanager\.{name}\b", left)] == []


def test_every_option_of_its_manager_is_there(left: str) -> None:
    """With what to write instead, or why there is none."""
    options = [each.name for each in dataclasses.fields(ocp.CheckpointManagerOptions)]
    assert [name for name in options if not re.search(rf"`{name}[`= ]", left)] == []
