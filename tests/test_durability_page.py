"""The page about durability names tests that exist, and counts that the benchmark printed."""

from __future__ import annotations

import ast
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.durability import TRIED, Count
from milepost.testing import FaultyStorage

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "durability.md").read_text()
RESULTS = ROOT / "benchmarks" / "results" / "durability.md"
NAMED = re.findall(r"`(tests/[\w/]+(?:\.py)?)((?:::\w+)*)`", PAGE)


def test_the_counts_are_those_of_the_benchmark() -> None:
    if not RESULTS.exists():
        pytest.skip("a source distribution has the page, and not the results that are on it")
    assert RESULTS.read_text().strip() in PAGE


@pytest.mark.parametrize(("path", "inside"), NAMED, ids="".join)
def test_a_test_that_is_named_exists(path: str, inside: str) -> None:
    assert (ROOT / path).exists()
    if inside:
        body = ast.parse((ROOT / path).read_text()).body
        for name in inside.split("::")[1:]:
            found = next(each for each in body if getattr(each, "name", "") == name)
            body = getattr(found, "body", [])


def test_files_that_are_named_are_not_few() -> None:
    assert len(NAMED) > 10


def test_what_is_counted_exists() -> None:
    assert [path for paths in TRIED.values() for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL on Windows")
def test_what_is_tried_is_counted() -> None:
    count = Count()
    with count.counting():
        storage = FaultyStorage()
        storage.create("a").close()
        states = list(storage.crash_states())
        storage.fail(5, errno.EIO)
        storage.fail(6, errno.EIO, times=None)
        subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], check=False)
        subprocess.run([sys.executable, "-c", ""], check=False)
    assert count.found == {"moments": 1, "states": len(states), "refused": 1, "died": 2}
    assert len(states) == 2
