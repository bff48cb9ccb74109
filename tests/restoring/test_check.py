"""What an error about values that do not fit tells the user to pass. No remedy is told that does not help."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from milepost import Checkpoint, MismatchError, Variable

CAST, KEEP = "pass cast=True", "pass ignore="


def remedy_of(saved: dict[str, Any], live: dict[str, Any], prefix: str, **options: Any) -> str:
    path = Checkpoint(**{name: Variable(value) for name, value in saved.items()}).write(prefix)
    fresh = Checkpoint(**{name: Variable(value) for name, value in live.items()})
    with pytest.raises(MismatchError) as caught:
        fresh.read(path, **options)
    remedy = caught.value.remedy or ""
    assert KEEP in remedy
    return remedy


FLOAT, DOUBLE, INT = np.zeros(2, np.float32), np.zeros(2), np.zeros(2, np.int64)
TEXT, TRUTH = np.array([b"a", b"b"], object), np.zeros(2, bool)


@pytest.mark.parametrize(
    ("saved", "live", "is_offered"),
    [
        ([FLOAT], [DOUBLE], True),
        ([INT], [FLOAT], True),
        ([FLOAT], [INT], False),
        ([TRUTH], [FLOAT], False),
        ([FLOAT, FLOAT], [DOUBLE, INT], False),
        ([FLOAT, FLOAT], [INT, DOUBLE], False),
        ([FLOAT, FLOAT], [DOUBLE, np.zeros(3, np.float32)], True),
        ([FLOAT], [np.zeros(3)], False),
        ([FLOAT], [np.zeros(3, np.float32)], False),
    ],
)
def test_a_cast_is_offered_only_if_it_converts_every_value(
    saved: list[Any], live: list[Any], is_offered: bool, prefix: str
) -> None:
    names = [f"v{number}" for number in range(len(saved))]
    remedy = remedy_of(dict(zip(names, saved, strict=True)), dict(zip(names, live, strict=True)), prefix)
    assert (CAST in remedy) == is_offered
    assert (f"ignore={names[0]!r}" in remedy) == (len(names) == 1)


def test_a_cast_that_was_passed_is_not_offered_again(prefix: str) -> None:
    remedy = remedy_of({"v": FLOAT}, {"v": INT}, prefix, cast=True)
    assert CAST not in remedy
    assert "cast does not convert" in remedy


def test_what_is_offered_helps(prefix: str) -> None:
    path = Checkpoint(v=Variable(FLOAT)).write(prefix)
    live: Any = Checkpoint(v=Variable(DOUBLE + 1))
    live.read(path, cast=True)
    assert live.v.numpy().tolist() == [0, 0]
    live = Checkpoint(v=Variable(DOUBLE + 1))
    live.read(path, ignore="v")
    assert live.v.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("count", [10, 11])
def test_many_values_that_do_not_fit_are_named_in_part(count: int, prefix: str) -> None:
    saved = {f"part{number:02}": {"v": Variable(FLOAT)} for number in range(count)}
    path = Checkpoint(**saved).write(prefix)
    fresh = Checkpoint(**{name: {"v": Variable(np.zeros(3, np.float32))} for name in saved})
    with pytest.raises(MismatchError) as caught:
        fresh.read(path)
    error = caught.value
    assert error.expected == "float32[3], as the live object has it"
    found = str(error.found)
    assert found.startswith("float32[2] in the checkpoint")
    assert found.count("also wrong shape") == 9
    assert ("and 1 more" in found) == (count > 10)
    names = "[...] with their names" if count > 10 else "[" + ", ".join(map(repr, saved)) + "]"
    assert (
        error.remedy
        == f"give the live object the saved shape; to keep the live values, pass ignore={names} to the restore"
    )
    assert {entry.live for entry in error.report} == {"float32[3]"}


def test_a_number_is_shown_with_its_type_and_shape(prefix: str) -> None:
    path = Checkpoint(v=Variable(DOUBLE)).write(prefix)
    with pytest.raises(MismatchError) as caught:
        Checkpoint(v=1.0).read(path)
    assert caught.value.expected == "float64[], as the live object has it"
