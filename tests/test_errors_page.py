"""The page about errors names every exception and warning, and says of each what it is."""

from __future__ import annotations

import builtins
import errno
import inspect
import re
from pathlib import Path

import pytest

import milepost
from milepost import errors, tensorflow_errors

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, (errors.MilepostError, errors.MilepostWarning))
}
ROWS = {
    row[0].strip("[`").partition("`")[0]: row[1:]
    for row in re.findall(r"^\| (\[`\w+`\]\S*) \|(.*)\|$", PAGE, re.MULTILINE)
}


def cells(name: str) -> list[str]:
    return [cell.strip() for cell in ROWS[name][0].split("|")]


def test_every_exception_and_warning_has_a_section_and_no_other_has() -> None:
    assert list(SECTIONS) == sorted(KINDS)
    assert sorted(ROWS) == sorted(KINDS)


def test_all_are_public() -> None:
    assert {name for name in milepost.__all__ if name.endswith(("Error", "Warning"))} == set(KINDS)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_section_says_when_and_what_to_do(name: str) -> None:
    if KINDS[name] is errors.MilepostError:
        assert "base of all exceptions" in SECTIONS[name]
        return
    assert re.search(r"\*\*When\.\*\* \w", SECTIONS[name])
    assert re.search(r"\*\*What to do\.\*\* [`\w]", SECTIONS[name])
    assert "```" in SECTIONS[name]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_table_says_what_it_is_too(name: str) -> None:
    bases = [
        base.__name__ for base in KINDS[name].__bases__ if base is not errors.MilepostError and base is not Exception
    ]
    named = re.findall(r"`(\w+)`", cells(name)[0])
    assert sorted(named) == sorted(bases)


@pytest.mark.parametrize("name", sorted(name for name in KINDS if name.endswith("Error")))
def test_the_table_says_what_it_is_in_tensorflow(name: str) -> None:
    told = cells(name)[1]
    if issubclass(KINDS[name], errors.StorageError):
        assert "StorageError" in told or "errno" in told
    else:
        assert told.strip("`") == tensorflow_errors._COUNTERPARTS.get(name, "")


def test_the_table_of_error_numbers_is_complete() -> None:
    rows = re.findall(r"^\| ((?:`E[A-Z]+`(?:, )?)+) \| `(\w+)` \|$", SECTIONS["StorageError"], re.MULTILINE)
    told = {getattr(errno, code.strip("`")): kind for codes, kind in rows for code in codes.split(", ")}
    assert told == tensorflow_errors._BY_ERRNO


def test_the_page_names_no_exception_that_does_not_exist() -> None:
    known = {*KINDS, *vars(builtins)}
    of_tensorflow = {*tensorflow_errors._COUNTERPARTS.values(), *tensorflow_errors._BY_ERRNO.values(), "UnknownError"}
    assert set(re.findall(r"\b[A-Z]\w+(?:Error|Warning)\b", PAGE)) <= known | of_tensorflow
