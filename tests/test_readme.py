"""Numbers in the README, and those at the beginning of docs/benchmarks.md, are those that the benchmarks printed."""

import re
from pathlib import Path

import pytest

from benchmarks import publish

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()
SHORT, _, RESULTS = PAGE.partition("\n## A state of 1.49 GB")
SPEED = README.split("## How fast it is")[1].split("\n## ")[0]
MEMORY = "### In memory"


def rows(text):
    return [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]


def measured(section):
    """The rows of the first table of a section, by the name of the contender."""
    return {row[0]: row for row in rows(section) if row[0] != "checksums"}


def test_the_speed_table_of_the_readme_is_the_benchmarks():
    memory = measured(RESULTS.split(MEMORY)[1].split("###")[0])
    table = [row for row in rows(SPEED) if row[0] in memory]
    assert len(table) == 5
    for name, checksums, fsync, save, restore in table:
        result = memory[name]
        assert [checksums, fsync, save, restore] == [result[1], result[2], result[4], result[6]]


def test_the_speed_table_in_short_is_the_benchmarks():
    memory = measured(RESULTS.split(MEMORY)[1].split("###")[0])
    table = [row for row in rows(SHORT.split("\n\nOn disk")[0]) if row[0] in memory]
    assert len(table) == 6
    for name, checksums, fsync, save, restore, extra in table:
        result = memory[name]
        assert [checksums, fsync, save, restore] == [result[1], result[2], result[4], result[6]]
        assert result[8].startswith(extra)


def test_ratios_on_disk_are_the_benchmarks():
    disk = measured(RESULTS.split("### On disk")[1].split("\n## ")[0])
    text = " ".join(SHORT.split())
    memory = measured(RESULTS.split(MEMORY)[1].split("###")[0])
    assert f"How much less (here {disk['milepost'][6]})" in text
    assert f"most of the {memory['milepost'][6]}; from disk, a restore takes {disk['milepost'][8]}" in text
    assert f"reads everything once ({memory['milepost, read once'][6]} from the page cache)" in text


def test_the_table_of_training_states_is_the_benchmarks():
    section = SHORT.split("whole training state, a model and AdamW (")[1].split("\n\n(A mapped")[0]
    results = measured(RESULTS.split("## A whole training state")[1])
    table = [row for row in rows(section) if row[0] in results]
    assert len(table) == 6
    for name, checksums, fsync, save, resume in table:
        assert [checksums, fsync, save, resume] == [results[name][number] for number in (1, 2, 4, 6)]
    assert section.split(")")[0] in RESULTS


@pytest.mark.parametrize(("text", "count"), [(SPEED, 2), (SHORT, 6)], ids=["README", "in short"])
def test_engine_overhead_is_the_benchmarks(text, count):
    numbers = re.findall(r"(\d+\.\d) µs", text)
    assert len(numbers) == count
    for number in numbers:
        assert f" {number} (" in RESULTS


def test_the_page_of_results_is_what_the_benchmarks_wrote():
    written = publish.reports()
    if not written:
        pytest.skip("a source distribution has the page of results, and not the files that it is made of")
    assert publish.published(PAGE, written) == PAGE


def test_a_report_is_published_in_the_place_of_the_old_one_and_remarks_stay():
    other = "## B\n\nMeasured on Monday"
    old = "## A\n\n1\n\nMeasured on Monday\n\n### Part\n\n2\n\nMeasured on Tuesday"
    new = "## A\n\n3\n\nMeasured on Friday"
    page = f"# Page\n\n{{}}\n\nA remark.\n\n{other}\n"
    assert publish.published(page.format(old), [new, other]) == page.format(new)


def test_a_report_that_the_page_lacks_is_published_at_its_end():
    report = "## A\n\nMeasured on Monday"
    assert publish.published("# Page\n", [report]) == f"# Page\n\n{report}\n"


def test_the_readme_is_short():
    """A stranger reads it to the end; what is longer has a page."""
    assert len(README.split()) < 900
