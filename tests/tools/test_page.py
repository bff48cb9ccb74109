"""The page about the command line: its examples give what they say."""

import doctest
import pathlib
import re
import shlex

import pytest

from milepost.tools.cli import main

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "cli.md"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """What the program on the page saves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)):
        test = doctest.DocTestParser().get_doctest(block, {}, f"block {number}", str(PAGE), 0)
        assert doctest.DocTestRunner(optionflags=OPTIONS).run(test).failed == 0
    return tmp_path


def test_every_example_prints_what_the_page_says(directory, capsys):
    checker = doctest.OutputChecker()
    examples = [
        example
        for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    assert len(examples) > 10
    for example in examples:
        line, _, expected = example.partition("\n")
        main(shlex.split(line)[1:])
        captured = capsys.readouterr()
        assert checker.check_output(expected, captured.out + captured.err, OPTIONS), (line, captured.out + captured.err)
