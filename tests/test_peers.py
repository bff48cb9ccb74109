"""The README's table of peers is what the experiments found, and milepost's column is what they find now."""

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import libraries, table
from benchmarks.peers.experiments import ROWS
from benchmarks.peers.experiments.syncs import synced
from tests.peers import section

ROOT = Path(__file__).parents[1]
published = pytest.mark.skipif(not table.RESULTS.exists(), reason="results are not in a source distribution")
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.KEY)


def found(row, title, tmp_path):
    finding = row.run(libraries.peer(title), tmp_path)
    if finding.cell == "not tried":
        pytest.skip(finding.seen["why"])
    return finding


@published
def test_every_library_was_tried_with_every_experiment():
    assert {title: set(column["findings"]) for title, column in table.results().items()} == {
        title: {row.KEY for row in ROWS} for title in libraries.COLUMNS
    }


@published
def test_the_readme_has_the_table_of_the_last_run():
    text = table.README.read_text()
    assert text == table.readme(text, table.results()), "run: python -m benchmarks.peers"


@published
def test_the_page_says_what_was_seen_in_the_last_run():
    text = table.PAGE.read_text()
    assert text == table.page(table.results(), text), "run: python -m benchmarks.peers"


@published
def test_the_page_has_the_section_about_the_tests_of_other_libraries():
    text = table.PAGE.read_text()
    assert text == section.page(section.results(), text), "run: python -m tests.peers"


@published
@rows
def test_the_column_of_milepost_is_true(row, tmp_path):
    if row.KEY == "together":
        pytest.importorskip("torch", reason="its processes are connected by PyTorch")
    finding = found(row, "milepost", tmp_path)
    assert finding.cell == table.results()["milepost"]["findings"][row.KEY]["cell"], finding.seen


@rows
def test_an_experiment_finds_what_is_wrong(row, tmp_path):
    """A program that writes a pickle by hand has none of the good properties but one: it is one file."""
    finding = found(row, "a plain file", tmp_path)
    assert finding.cell == ("yes" if row.KEY == "one_file" else "no"), finding.seen


OWN = {"a": "passed", "b": "passed", "c": "failed", "d": "passed", "e": "skipped"}
WITH_MILEPOST = {"a": "passed", "b": "failed", "c": "failed", "d": "excluded", "e": "skipped"}


class TestSuitesOfOthers:
    """What is counted of two runs of a suite: one with the library itself, and one with milepost."""

    @staticmethod
    def run(ends, **suite):
        facts = {"title": "A library", "replaced": "All of it.", "excluded": {}, "failing": {}, **suite}
        tests = {
            f"test.py::{name}": {"ended": end, "why": "*::d" if end == "excluded" else end}
            for name, end in ends.items()
        }
        return {"suite": facts, "versions": {}, "tests": tests}

    def test_each_test_is_counted_once(self):
        shimmed = self.run(WITH_MILEPOST, excluded={"*::d": "not offered"}, failing={"*::b": "another way"})
        found = section.finding(self.run(OWN), shimmed)
        assert found["counts"] == {"passed": 1, "failed": 1, "excluded": 1, "not run": 2}
        assert found["passed by the library"] == 3
        assert found["failed"] == [{"tests": "*::b", "count": 1, "why": "another way"}]
        assert section.complaints(self.run(OWN), shimmed) == []

    def test_what_a_suite_does_not_explain_is_named(self):
        shimmed = self.run(WITH_MILEPOST, excluded={"*::d": "not offered"}, failing={"*::a": "passes now"})
        complaints = section.complaints(self.run(OWN), shimmed)
        assert complaints == [
            "test.py::b fails, and nothing says why: failed",
            "no test is failed any more that fits '*::a'",
        ]


class TestSynced:
    """What is durable after the calls of a save, as strace writes them."""

    def test_a_file_synced_before_its_last_write_is_not(self, tmp_path):
        file = tmp_path / "a"
        file.touch()
        calls = [
            f'openat(AT_FDCWD</>, "{file}", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3<{file}>',
            f"fsync(3<{file}>) = 0",
            f'write(3<{file}>, ""..., 4) = 4',
        ]
        assert synced(calls, tmp_path) == ({str(file): False}, {str(tmp_path): False})

    def test_a_renamed_file_stays_synced_and_its_directory_does_not(self, tmp_path):
        file = tmp_path / "a"
        file.touch()
        calls = [
            f'openat(AT_FDCWD</>, "{file}.tmp", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3<{file}.tmp>',
            f"fsync(3<{file}.tmp>) = 0",
            f"fsync(4<{tmp_path}>) = 0",
            f'rename("{file}.tmp", "{file}") = 0',
        ]
        assert synced(calls, tmp_path) == ({str(file): True}, {str(tmp_path): False})
        assert synced([*calls, f"fsync(4<{tmp_path}>) = 0"], tmp_path)[1] == {str(tmp_path): True}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_says_what_it_leaves_out_where_no_python_is_old_enough(tmp_path):
    """`make test` goes on without a Python 3.11, and says what was not run."""
    for program in ("make", "sh"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    done = subprocess.run(
        ["make", "--no-print-directory", "test-tf215-if-possible"],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("NOT RUN: the tests with TensorFlow 2.15")
    assert done.stdout.count("\n") == 1
