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


def column(section, name, position):
    """The median that a cell of a table begins with."""
    return float(measured(section)[name][position].split()[0])


def ratios(section, name, other, *positions):
    """How many times as long as another one contender takes, in some columns of a table, as the README writes it."""
    return " and ".join(f"{column(section, name, each) / column(section, other, each):.1f}" for each in positions)


def test_ratios_in_the_readme_are_the_benchmarks():
    """And the section has no other number."""
    state, memory = re.match(r"(.*?) in \d+ tensors\n(.*)", PAGE.split("\n## A state of ")[1], re.DOTALL).groups()
    memory = memory.split(MEMORY)[1].split("###")[0]
    small = RESULTS.split("\n### The first save or restore of these variables in the process")[1].split("###")[0]
    header = ["", *next(line for line in rows(small) if "save 20,000" in line)]
    columns = header.index("save 20,000"), header.index("restore 20,000")
    tensorflow_save, tensorflow_restore = (ratios(memory, "tf.train.Checkpoint", "milepost", each) for each in (4, 6))
    own_save, own_restore = (measured(small)["milepost"][each].split()[0] for each in columns)
    text = " ".join(SPEED.split())
    for sentence in (
        f"A state of {state} in memory: tf.train.Checkpoint takes {tensorflow_save} times as long as milepost to save it and "
        f"{tensorflow_restore} times to restore it, Orbax {ratios(memory, 'Orbax', 'milepost', 4, 6)} times, and safetensors, without checksums "
        f"and fsync, {ratios(memory, 'safetensors', 'milepost', 4, 6)} times.",
        f"`torch.load(mmap=True)` returns in {ratios(memory, 'torch, mmap', 'milepost', 6)} times the time of a restore, but has read nothing yet.",
        f"Of 20,000 small variables, each takes {own_save} µs to save and {own_restore} µs to restore.",
        f"tf.train.Checkpoint takes {ratios(small, 'tf.train.Checkpoint', 'milepost', *columns)} times as long.",
        f"milepost takes {ratios(small, 'milepost', 'safetensors', *columns)} times as long as safetensors, which has neither graph nor fsync.",
    ):
        assert sentence in text
        text = text.replace(sentence, "")
    assert re.findall(r"\d", text) == []


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


def test_engine_overhead_is_the_benchmarks():
    numbers = re.findall(r"(\d+\.\d) µs", SHORT)
    assert len(numbers) == 6
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


def test_the_readme_answers_a_stranger_in_order():
    headings = re.findall(r"^(?:## .*|!\[)", README, re.MULTILINE)
    assert headings == [
        *("## Install", "## Ten lines that run", "![", "## Why", "## Compared with others", "## How fast it is"),
        *("## What is saved", "## Limits", "## More"),
    ]


def test_the_readme_is_short():
    """A stranger reads it to the end; what is longer has a page."""
    assert len(README.split()) < 900
