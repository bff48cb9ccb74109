"""One of three processes is killed, stopped or runs out of disk before each of its file operations in a save."""

from __future__ import annotations

import json
import re

import pytest

from tests.once import computed_once
from tests.several.crashes import KINDS, TIMEOUT
from tests.several.programs import FILES, Processes, settings

_PATIENCE = 30.0
"""Seconds that a busy machine may take longer than the time limits."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Every case: what each process said, and what the next run found."""
    return computed_once(tmp_path_factory, "crashes", lambda: run_all(tmp_path_factory))


def run_all(directories):
    """Runs every case; they wait for time limits most of the time, so all kinds run at once."""
    arguments = [
        ["-m", "tests.several.crashes", str(directories.mktemp("crashes")), kind, str(rank)]
        for kind in KINDS
        for rank in (0, 1)
    ]
    ended = Processes(arguments, FILES, settings()).end(deadline=1200)
    assert [each.code for each in ended] == [0] * len(ended), [each.error[-3000:] for each in ended]
    return [json.loads(line) for each in ended for line in each.output.splitlines()]


def describe(case):
    return f"process {case['failing']} {case['kind']} before operation {case['at']}: {case}"


def spoke(case):
    """What the processes have said that were not the one that failed."""
    return [said for rank, said in enumerate(case["said"]) if rank != case["failing"]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failing", [0, 1])
def test_every_operation_was_tried(cases, kind, failing):
    tried = [case["at"] for case in cases if case["kind"] == kind and case["failing"] == failing]
    assert tried == list(range(len(tried)))
    assert len(tried) > 2


def test_nobody_waits_for_ever(cases):
    for case in cases:
        assert all(said["seconds"] < 3 * TIMEOUT + _PATIENCE for said in spoke(case)), describe(case)


def test_who_says_saved_is_right_and_who_says_failed_is_right(cases):
    for case in cases:
        for said in filter(None, case["said"]):
            assert said["outcome"].startswith("saved") == case["visible"], describe(case)


def test_the_counter_is_that_of_the_checkpoint_that_is_there(cases):
    for case in cases:
        for said in filter(None, case["said"]):
            assert said["counter"] == (2 if case["visible"] else 1), describe(case)


def test_the_failure_names_a_process(cases):
    for case in cases:
        if not case["visible"]:
            assert all(re.search(r"process(es)? \d.* of 3", said["outcome"]) for said in spoke(case)), describe(case)


def test_the_next_run_finds_the_old_or_the_new_state_whole(cases):
    for case in cases:
        for found in case["found"]:
            assert found["whole"], describe(case)
            assert found["step"] == (2 if case["visible"] else 1), describe(case)
            assert found["drawn"], describe(case)


def test_the_next_run_saves_under_the_next_number(cases):
    for case in cases:
        again = {found["again"] for found in case["found"]}
        assert again == {"ckpt-3" if case["visible"] else "ckpt-2"}, describe(case)


def test_nothing_is_left_over_after_the_next_run(cases):
    assert [describe(case) for case in cases if case["left"]] == []
