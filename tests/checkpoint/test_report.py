"""The report accounts for every saved value and every live one, and the assertions agree with it."""

import json

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, MismatchError, Module, SlotOwner, Variable
from milepost.engine.report import Outcome
from tests.objects import module


def outcomes(status):
    return {entry.key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): entry.outcome.value for entry in status.report()}


def test_every_value_has_one_outcome(prefix):
    saved = Checkpoint(a=Variable(1.0), b=Variable(2.0), t=(Variable(3.0), Variable(4.0)), v=Variable(5.0))
    live = Checkpoint(a=Variable(0.0), new=Variable([1.0]), t=(Variable(0.0),), v=module(w=Variable(0.0)))
    status = live.read(saved.write(prefix)).expect_partial()
    assert outcomes(status) == {
        "a": "matched",
        "b": "deferred",
        "t/0": "matched",
        "t/1": "unexpected",
        "v": "unexpected",
        "new": "missing",
        "v/w": "missing",
    }


def test_entries_tell_saved_and_live_specs(prefix):
    path = Checkpoint(a=Variable([1.0])).write(prefix)
    report = Checkpoint(a=Variable([0.0]), b=Variable(1)).read(path).report()
    assert [(entry.saved, entry.live) for entry in report] == [("float32[1]", "float32[1]"), ("", "int32[]")]


def test_none_is_called_so(prefix):
    path = Checkpoint(same=None, gone=None, empty=Variable(np.zeros(0, bool))).write(prefix)
    report = Checkpoint(same=None, new=None).read(path, ignore="gone").expect_partial().report()
    specs = {entry.key.partition("/.A")[0]: (entry.saved, entry.live) for entry in report}
    assert specs == {"same": ("None", "None"), "gone": ("None", ""), "new": ("", "None"), "empty": ("bool[0]", "")}
    with pytest.raises(MismatchError, match="found: None in the checkpoint"):
        Checkpoint(same=Variable(1.0)).read(path)
    assert ">None</td>" in milepost.load_checkpoint(path)._repr_html_()


def test_the_report_follows_what_happens_later(prefix):
    path = Checkpoint(a=Variable(1.0)).write(prefix)
    live = Checkpoint()
    status = live.read(path)
    assert status.report().counts()["deferred"] == 1
    live.a = Variable(0.0)
    assert status.report().complete


def test_the_report_is_json_for_programs(prefix):
    path = Checkpoint(a=Variable(1.0)).write(prefix)
    data = json.loads(Checkpoint(a=Variable(0.0)).read(path).report().to_json())
    assert data["counts"]["matched"] == 1
    assert data["prefix"] == path
    assert data["entries"][0]["key"] == "a/.ATTRIBUTES/VARIABLE_VALUE"


def test_the_printed_report_lists_all_but_matches(prefix):
    path = Checkpoint(a=Variable(1.0), b=Variable(1.0)).write(prefix)
    status = Checkpoint(a=Variable(0.0)).read(path).expect_partial()
    text = str(status.report())
    assert "1 matched, 1 deferred" in text
    assert "b/.ATTRIBUTES/VARIABLE_VALUE float32[]" in text
    assert "a/.ATTRIBUTES" not in text


def test_assert_consumed_names_what_is_left(prefix):
    path = Checkpoint(a=Variable(1.0), b=Variable(1.0)).write(prefix)
    status = Checkpoint(a=Variable(0.0)).read(path).expect_partial()
    with pytest.raises(AssertionError, match=r"deferred: b/\.ATTRIBUTES") as caught:
        status.assert_consumed()
    assert caught.value.report.of(Outcome.DEFERRED)


def test_assert_existing_objects_matched_allows_more_in_the_checkpoint_but_not_in_the_program(prefix):
    path = Checkpoint(a=Variable(1.0), b=Variable(1.0)).write(prefix)
    live = Checkpoint(a=Variable(0.0))
    status = live.read(path).expect_partial()
    assert status.assert_existing_objects_matched() is status
    live.new = Variable(0.0)
    with pytest.raises(AssertionError, match="missing: new"):
        status.assert_existing_objects_matched()


def test_objects_without_values_need_no_match(prefix):
    path = Checkpoint(a=Variable(1.0)).write(prefix)
    live = Checkpoint(a=Variable(0.0), empty=Module(), nothing=[], also={})
    live.read(path).assert_existing_objects_matched().assert_consumed()


def test_assert_nontrivial_match(prefix):
    path = Checkpoint(a=Variable(1.0)).write(prefix)
    Checkpoint(a=Variable(0.0)).read(path).assert_nontrivial_match()
    status = Checkpoint(other=Variable(0.0)).read(path).expect_partial()
    with pytest.raises(AssertionError, match="no object except the root"):
        status.assert_nontrivial_match()


def test_initialize_or_restore_and_run_restore_ops_do_nothing(prefix):
    status = Checkpoint(a=Variable(0.0)).read(Checkpoint(a=Variable(1.0)).write(prefix))
    assert status.initialize_or_restore() is None
    assert status.run_restore_ops() is None


def test_a_later_restore_does_not_make_the_earlier_ones_assertions_fail(prefix):
    first, second = (Checkpoint(a=Variable(float(n))).write(f"{prefix}{n}") for n in (1, 2))
    live = Checkpoint(a=Variable(0.0))
    status = live.read(first)
    live.read(second)
    status.assert_consumed()


def test_a_failed_assertion_lists_some_of_each_kind(tmp_path):
    saved = Checkpoint(old={f"v{number}": Variable(0.0) for number in range(40)})
    path = saved.write(tmp_path / "c")
    renamed = Checkpoint(new={f"v{number}": Variable(0.0) for number in range(40)})
    with pytest.raises(AssertionError) as caught:
        renamed.read(path).assert_consumed()
    text = str(caught.value)
    assert "old/v0" in text
    assert "new/v0" in text
    assert text.count("\n    and 34 more") == 2


def test_the_report_of_a_restore_that_is_refused_is_complete(tmp_path):
    """What is missing and what nobody takes is in it too, and nothing is said to have been given."""
    path = Checkpoint(a=Variable(1.0), b=Variable([1.0]), lost=Variable(2.0), sub={"x": Variable(3.0)}).write(
        tmp_path / "ckpt"
    )
    live = Checkpoint(a=Variable(5.0), b=Variable([1.0, 2.0]), new=Variable(6.0))
    with pytest.raises(MismatchError) as caught:
        live.read(path)
    counts = caught.value.report.counts()
    assert {name: count for name, count in counts.items() if count} == {"deferred": 2, "missing": 1, "wrong shape": 1}
    assert [entry.key.split("/")[0] for entry in caught.value.report.missing] == ["new"]
    assert float(live.a) == 5
    status = live.read(Checkpoint(a=Variable(7.0), b=Variable([0.0, 0.0]), new=Variable(8.0)).write(tmp_path / "good"))
    status.assert_consumed()


def test_what_is_missing_is_named_also_after_a_member_that_came_later(prefix):
    path = Checkpoint(x=[np.zeros(2)], m=module(v=Variable(1.0))).write(prefix)
    live = Checkpoint(x=[np.zeros(2)], m=module(v=Variable(0.0), w=Variable(0.0)))
    status = live.read(path)
    live.x.append(np.ones(3))
    missing = [entry.key for entry in status.report() if entry.outcome is Outcome.MISSING]
    assert missing == ["m/w/.ATTRIBUTES/VARIABLE_VALUE"]


def test_a_missing_value_is_told_besides_a_member_that_came_later(prefix):
    path = Checkpoint(members=[1.5]).write(prefix)
    live = Checkpoint(members=[1.0], net=module(lacking=Variable(2.0)))
    status = live.read(path)
    live.members.append(7)
    assert [entry.key.partition("/.")[0] for entry in status.report().missing] == ["net/lacking"]


def test_a_slot_variable_that_was_made_again_counts_as_the_one_before(prefix):
    def made():
        owner, variable = SlotOwner(), Variable(1.0)
        owner.add_slot(variable, "m")
        return Checkpoint(owner=owner, variable=variable)

    live = made()
    status = live.read(made().write(prefix))
    live.owner.drop_slot(live.variable, "m")
    live.owner.add_slot(live.variable, "m")
    assert set(outcomes(status).values()) == {"matched"}
