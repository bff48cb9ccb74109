"""Numbers in the README are those that the benchmarks printed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs" / "benchmarks.md").read_text()


def rows(text):
    return [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]


def test_the_speed_table_is_the_benchmarks():
    section = README.split("## How fast it is")[1].split("\n\nOn disk")[0]
    memory = {row[0]: row for row in rows(RESULTS.split("### In memory")[1].split("###")[0])}
    table = [row for row in rows(section) if row[0] in memory and row[0] != "checksums"]
    assert len(table) == 6
    for name, checksums, fsync, save, restore, extra in table:
        result = memory[name]
        assert [checksums, fsync, save, restore] == [result[1], result[2], result[4], result[6]]
        assert result[8].startswith(extra)


def test_ratios_on_disk_are_the_benchmarks():
    disk = {row[0]: row for row in rows(RESULTS.split("### On disk")[1].split("\n## ")[0])}
    text = " ".join(README.split("## How fast it is")[1].split())
    assert f"accuracy of the measurement ({disk['milepost'][6]})" in text
    assert f"from disk, a restore takes {disk['milepost'][8]}" in text


def test_the_table_of_training_states_is_the_benchmarks():
    section = README.split("whole training state, a model and AdamW (")[1].split("\n\n(A mapped")[0]
    results = {row[0]: row for row in rows(RESULTS.split("## A whole training state")[1])}
    table = [row for row in rows(section) if row[0] in results and row[0] != "checksums"]
    assert len(table) == 6
    for name, checksums, fsync, save, resume in table:
        assert [checksums, fsync, save, resume] == [results[name][number] for number in (1, 2, 4, 6)]
    assert section.split(")")[0] in RESULTS


def test_engine_overhead_is_the_benchmarks():
    numbers = re.findall(r"(\d+\.\d) µs", README)
    assert len(numbers) == 6
    for number in numbers:
        assert f" {number} (" in RESULTS


def test_the_page_of_results_is_what_the_benchmarks_wrote():
    written = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    if not written:
        pytest.skip("a source distribution has the page of results, and not the files that it is made of")
    for file in written:
        assert file.read_text().strip() in RESULTS
