"""What is warned of where nobody asks a restore what it did."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from milepost import Checkpoint, UnrestoredWarning, Variable
from tests.objects import module
from tests.systems import needs_fork


@pytest.fixture
def caught():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def texts(caught):
    return [str(each.message) for each in caught if each.category is UnrestoredWarning]


def fails(assertion):
    with pytest.raises(AssertionError):
        assertion()


def run(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stderr


def test_live_values_that_were_not_saved_are_warned_of_at_the_line_that_restored(prefix, caught):
    path = Checkpoint(net=module(a=Variable(1.0))).write(prefix)
    live = Checkpoint(net=module(a=Variable(0.0), b=Variable(0.0)))
    live.read(path)
    (text,) = texts(caught)
    assert "net/b/.ATTRIBUTES" in text
    assert "net/a" not in text
    assert caught[0].filename == __file__


def test_one_of_two_live_objects_for_one_saved_object_is_warned_of(prefix, caught):
    """The saved values go to the first of them; the other keeps what it had."""
    shared = Variable(1.0)
    path = Checkpoint(net=module(a=shared, b=shared)).write(prefix)
    live = Checkpoint(net=module(a=Variable(0.0), b=Variable(0.0)))
    live.read(path)
    (text,) = texts(caught)
    assert "net/b/.ATTRIBUTES" in text
    assert "net/a" not in text


def test_a_restore_that_fails_at_once_raises_its_error_and_prints_nothing(prefix, monkeypatch):
    """Nothing was bound yet, so there is nothing to warn of."""

    def fail(*_):
        raise MemoryError

    path = Checkpoint(v=Variable(1.0)).write(prefix)
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    monkeypatch.setattr("milepost.restoring.restore.graph_of_process", fail)
    with pytest.raises(MemoryError):
        Checkpoint(v=Variable(0.0)).read(path)
    assert printed == []


def test_a_shared_object_that_is_shared_again_is_not_warned_of(prefix, caught):
    saved, restored = Variable(1.0), Variable(0.0)
    path = Checkpoint(net=module(a=saved, b=saved)).write(prefix)
    Checkpoint(net=module(a=restored, b=restored)).read(path)
    assert float(restored) == 1
    assert texts(caught) == []


def test_a_restore_that_matched_nothing_is_said_to_have(prefix, caught):
    path = Checkpoint(net=module(a=Variable(1.0))).write(prefix)
    Checkpoint(model=module(a=Variable(0.0))).read(path)
    assert any("no object except the root was matched" in text for text in texts(caught))


def test_a_status_that_is_kept_unasked_is_spoken_for_by_the_next_save(prefix, caught):
    path = Checkpoint(a=Variable(1.0)).write(prefix)
    live = Checkpoint(a=Variable(0.0), b=Variable(0.0))
    status = live.read(path)
    Checkpoint(a=Variable(0.0)).write(prefix + "-other")
    assert texts(caught) == []
    live.write(prefix + "-again")
    assert len(texts(caught)) == 1
    live.write(prefix + "-again")
    del status
    assert len(texts(caught)) == 1


def test_objects_that_came_after_a_restore_and_matched_nothing_are_warned_of_in_the_next_save(prefix, caught):
    path = Checkpoint(net=module(a=Variable(1.0))).write(prefix)
    live = Checkpoint()
    live.read(path)
    assert texts(caught) == []
    live.model = module(a=Variable(0.0))
    live.save(prefix)
    assert any("model/a" in text for text in texts(caught))


@pytest.mark.parametrize(
    "ask",
    [
        lambda status: status.report(),
        lambda status: status.assert_nontrivial_match(),
        lambda status: status.expect_partial(),
        lambda status: fails(status.assert_consumed),
        lambda status: fails(status.assert_existing_objects_matched),
    ],
    ids=["report", "nontrivial", "partial", "consumed", "existing"],
)
def test_who_has_asked_is_not_told_again(prefix, caught, ask):
    path = Checkpoint(a=Variable(1.0)).write(prefix)
    live = Checkpoint(a=Variable(0.0), b=Variable(0.0))
    status = live.read(path)
    ask(status)
    live.write(prefix)
    del status
    assert texts(caught) == []


def test_a_full_match_is_not_warned_of(prefix, caught):
    live = Checkpoint(a=Variable(1.0), m=module(l=[Variable(1.0), {"k": Variable(np.ones(2))}]))
    live.read(live.write(prefix))
    live.restore(live.save(prefix))
    live.read(prefix)  # which has no counter
    live.save(prefix)
    assert texts(caught) == []


def test_new_objects_after_a_full_match_are_not_warned_of(prefix, caught):
    live = Checkpoint(a=Variable(1.0))
    status = live.read(live.write(prefix))
    live.b = Variable(1.0)
    live.write(prefix)
    del status
    assert texts(caught) == []


def test_what_a_second_restore_gave_is_not_warned_of_in_the_next_save(prefix, caught):
    Checkpoint(a=Variable(1.0)).write(prefix + "1")
    Checkpoint(b=Variable(1.0)).write(prefix + "2")
    live = Checkpoint(a=Variable(0.0), b=Variable(0.0))
    statuses = [live.read(prefix + "1"), live.read(prefix + "2").expect_partial()]
    live.write(prefix)
    assert texts(caught) == []
    statuses[0].expect_partial()


_AT_EXIT = """
import milepost, sys
live = milepost.Checkpoint(a=milepost.Variable(0.0), new=milepost.Variable(0.0))
status = live.read(sys.argv[1])
"""


def test_the_end_of_the_process_warns_of_both_kinds(prefix):
    path = Checkpoint(a=Variable(1.0), old=Variable(1.0)).write(prefix)
    said = run(_AT_EXIT, path)
    assert said.count("UnrestoredWarning") == 2
    assert "new/.ATTRIBUTES" in said
    assert "old/.ATTRIBUTES" in said
    assert "<string>:4" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "more", ["status.expect_partial()", pytest.param("import os; status.expect_partial(); os.fork()", marks=needs_fork)]
)
def test_the_end_of_the_process_is_silent_if_nothing_is_to_be_said(prefix, more):
    path = Checkpoint(a=Variable(1.0), old=Variable(1.0)).write(prefix)
    assert run(_AT_EXIT + more, path) == ""


@needs_fork
def test_a_forked_child_says_nothing_at_its_end(prefix):
    path = Checkpoint(a=Variable(1.0), old=Variable(1.0)).write(prefix)
    said = run(_AT_EXIT + "import os\nif os.fork(): os.wait()", path)
    assert said.count("UnrestoredWarning") == 2


def test_the_last_objects_of_a_process_go_without_an_error(prefix):
    path = Checkpoint(a=Variable(1.0), old=Variable(1.0)).write(prefix)
    said = run(_AT_EXIT + "import collections; collections.kept = live", path)
    assert said.count("UnrestoredWarning") == 2
    assert "Exception ignored" not in said
