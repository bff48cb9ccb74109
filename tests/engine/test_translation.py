"""What arguments of a restore make of names."""

import re
import warnings

import numpy as np
import pytest

import milepost
from milepost.engine.translation import Translated, Translation
from milepost.errors import UnsupportedError, UntrackableError
from milepost.storage import LocalStorage
from tests.bundle.bundles import write


@pytest.mark.parametrize(("pattern", "new"), [("(", "x"), ("a", r"\1"), ("*", "x"), ("[", "x")])
def test_a_malformed_regular_expression_is_explained(pattern, new):
    with pytest.raises(UnsupportedError) as caught:
        Translation([(pattern, new)])
    assert caught.value.key == "rename"
    assert repr(pattern) in caught.value.found
    assert caught.value.remedy.startswith("correct it: ")
    assert "backslash" in caught.value.remedy


@pytest.mark.parametrize(
    ("rename", "saved", "live"),
    [
        ({"net": "model"}, "net/l1/w", "model/l1/w"),
        ({"net": "model"}, "network/w", "network/w"),
        ({"net": "model"}, "net", "model"),
        ({"net/": "model/"}, "net/w", "model/w"),
        ({"a.b": "c.d"}, "a/b/w", "c/d/w"),
        ({"": "model"}, "w", "model/w"),
        ({"net": ""}, "net/w", "w"),
        ({"a": "x", "a/b": "y"}, "a/b/w", "y/w"),
        ({"a": "x", "a/b": "y"}, "a/c/w", "x/c/w"),
        ({"h.*.attn": "blocks.*.attention"}, "h/11/attn/w", "blocks/11/attention/w"),
        ({"h.*": "blocks.*"}, "h/1/2", "blocks/1/2"),
        ({"with..dot": "plain"}, "with..dot/w", "plain/w"),
        ([(r"layers/(\d+)", r"blocks/\1")], "layers/3/w", "blocks/3/w"),
        ([("a", "b"), ("b", "c")], "a", "c"),
        ([(re.compile(r"LAYERS/(\d+)", re.IGNORECASE), r"blocks/\1")], "layers/3/w", "blocks/3/w"),
        ([(re.compile(r"layers\.(\d+)"), r"blocks.\1")], "layers/3/w", "blocks/3/w"),
        (str.upper, "a/b", "A/B"),
        (lambda name: None, "a", None),
        ({}, "a/b", "a/b"),
    ],
)
def test_a_saved_name_becomes_a_live_name(rename, saved, live):
    assert Translation(rename).live_name(saved) == live


@pytest.mark.parametrize("rename", [{re.compile("a"): "b"}, [(re.compile(b"a"), "b")], [(re.compile("a"), str.upper)]])
def test_an_expression_that_cannot_be_used_is_refused(rename):
    with pytest.raises(UnsupportedError, match="pairs"):
        Translation(rename)


def test_a_compiled_expression_that_is_in_no_name_is_told(tmp_path):
    path = milepost.save(tmp_path / "c", {"a": np.zeros(2)})
    with pytest.warns(milepost.UnrestoredWarning, match=r"rename has 'nothing', which fits no saved name"):
        milepost.load(path, rename=[(re.compile("nothing"), "b")])


def test_names_of_pytorch_keep_their_dots():
    translation = Translation({"model.encoder": "model.backbone"})
    assert translation.live_name("model/encoder.0.weight", dotted=True) == "model.backbone.0.weight"


@pytest.mark.parametrize(
    ("names", "path", "matches"),
    [
        ("head", "head", True),
        ("head", "head/w", True),
        ("head", "header/w", False),
        ("head.w", "head/w", True),
        ("head/w", "head.w", True),
        (["x", "head"], "head/w", True),
        ("*/bias", "l1/l2/bias", True),
        ("*/bias", "bias", False),
        ("l*/w", "l1/w/m", True),
        ("", "head", False),
    ],
)
def test_a_pattern_matches_names_and_what_is_below(names, path, matches):
    assert Translation(ignore=names).leaves_alone(path) is matches
    if names:
        assert Translation(only=names).leaves_alone(path) is not matches


def test_only_keeps_nothing_where_it_names_nothing():
    assert Translation(only=[]).leaves_alone("w")


def test_the_counter_of_a_series_is_left_alone_only_by_name():
    assert not Translation(only="model").leaves_alone("save_counter")
    assert Translation(ignore="save_counter").leaves_alone("save_counter")


def test_ignore_and_only_are_about_live_names():
    translation = Translation({"net": "model"}, ignore="model/head")
    assert [translation.live_name(name) for name in ("net/head/w", "net/w")] == [None, "model/w"]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"rename": "net"}, "rename"),
        ({"rename": {1: "a"}}, "rename"),
        ({"rename": {"a": "*"}}, "rename"),
        ({"rename": [("(", "a")]}, "rename"),
        ({"rename": [("a", r"\1")]}, "rename"),
        ({"rename": [("a",)]}, "rename"),
        ({"ignore": 3}, "ignore"),
        ({"ignore": [3]}, "ignore"),
        ({"only": 3}, "only"),
        ({"cast": [3]}, "cast"),
        ({"cast": "float32", "only": {"a"}}, "only"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(arguments, key):
    with pytest.raises(UnsupportedError, match=rf"key: {key}\b"):
        Translation(**arguments)


@pytest.mark.parametrize("rename", [lambda name: 1 / 0, lambda name: 3, lambda name: ""])
def test_a_function_that_fails_is_named_with_the_name_that_it_was_given(rename):
    with pytest.raises(UntrackableError, match="key: net/w"):
        Translation(rename).live_name("net/w")


def warned_of(path, **arguments):
    """The texts of the warnings of a restore into other objects than those that were saved."""
    live = milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable(np.zeros(2)), new=milepost.Variable(0.0)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        live.read(path, **arguments).expect_partial()
    return [str(each.message).partition(": ")[2] for each in caught]


@pytest.fixture
def saved(tmp_path):
    state = milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable(np.ones(2)), gone=milepost.Variable(1.0)))
    return state.write(tmp_path / "ckpt")


@pytest.mark.parametrize(
    "arguments",
    [
        {"rename": {"net": "net", "net/gone": "net/other"}},
        {"rename": {"net": "x", "net/w": "net/w", "net/gone": "net/gone"}},  # of several that fit, the longest counts
        {"rename": [("gone$", "old"), ("old$", "older")]},
        {"rename": {"net/w": "net/w2", "net/gone": "net/w"}, "ignore": "net/w"},
        {"ignore": ["net/gone", "net.new"]},  # of these one is saved, and the other live
        {"only": "*/w"},
        {"cast": ["net/w", "net/gone"]},
        {"ignore": "save_counter"},
    ],
)
def test_what_names_something_is_not_warned_of(saved, arguments):
    if arguments == {"ignore": "save_counter"}:
        saved = milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable(np.ones(2)))).save(saved)
    assert warned_of(saved, **arguments) == []


def test_what_names_nothing_is_warned_of_once_for_each_entry(saved):
    assert warned_of(saved, rename={"nat": "a", "zzz": "b", "net/w": "net/w"}) == [
        "rename has 'nat', which fits no saved name, so it renames nothing; did you mean 'net'?",
        "rename has 'zzz', which fits no saved name, so it renames nothing; saved names are 'net/gone', 'net/w'",
    ]


def test_the_warning_points_at_the_line_that_restores(saved):
    with pytest.warns(milepost.UnrestoredWarning) as caught:
        milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable(np.zeros(2)))).read(
            saved, only="nat"
        ).expect_partial()
    assert caught[0].filename == __file__


@pytest.mark.parametrize("arguments", [{"rename": {"nat": "a"}}, {"ignore": "nat"}, {"only": "nat"}], ids=str)
def test_loading_warns_of_what_names_nothing(saved, arguments):
    with pytest.warns(milepost.UnrestoredWarning, match=r"'nat'.*did you mean 'net'"):
        milepost.load(saved, **arguments)


def live_like_saved():
    return milepost.Checkpoint(net=milepost.Checkpoint(w=milepost.Variable(np.ones(2)), gone=milepost.Variable(1.0)))


@pytest.mark.filterwarnings("ignore::milepost.errors.UnrestoredWarning")
@pytest.mark.parametrize("assertion", ["assert_consumed", "assert_existing_objects_matched"])
@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize(
    ("arguments", "found", "remedy"),
    [
        (
            {"only": "nat"},
            "only names 'nat', and neither a saved value nor a live object has this name",
            "did you mean 'net'?",
        ),
        ({"only": ["net", "zzz"]}, "only names 'zzz', and neither", "correct it, or leave it out of only"),
        ({"only": []}, "only is an empty list", "name what is wanted"),
        ({"rename": lambda name: None}, "has returned None for every saved name", "return the name unchanged"),
    ],
    ids=["no name fits", "one name does not fit", "no names", "all left out by a function"],
)
def test_no_assertion_passes_over_names_that_name_nothing(saved, root, arguments, found, remedy, assertion):
    live = live_like_saved()
    status = (milepost.Checkpoint(live) if root else live).read(saved, **arguments)
    with pytest.raises(milepost.UnmatchedError) as caught:
        getattr(status, assertion)()
    assert found in caught.value.found
    assert remedy in caught.value.remedy
    assert caught.value.file == saved
    assert caught.value.report is not None


@pytest.mark.filterwarnings("ignore::milepost.errors.UnrestoredWarning")
def test_nor_does_that_of_a_name_based_checkpoint(tmp_path):
    path = str(tmp_path / "model")
    write(LocalStorage(), path, {"v": np.float32(1)})
    live = milepost.Checkpoint(v=milepost.Variable(np.float32(0), name="v"))
    live.read(path, only="v").assert_consumed()
    with pytest.raises(milepost.UnmatchedError, match="only names 'vv'"):
        live.read(path, only="vv").assert_consumed()


@pytest.mark.filterwarnings("ignore::milepost.errors.UnrestoredWarning")
@pytest.mark.parametrize(
    "arguments", [{"ignore": "*"}, {"ignore": ["net", "zzz"]}, {"only": "net/gone"}, {"rename": {"zzz": "a"}}], ids=str
)
def test_what_was_left_out_by_a_name_that_exists_is_no_failure(saved, arguments):
    live_like_saved().read(saved, **arguments).assert_consumed().assert_existing_objects_matched()


def test_a_restore_that_ignores_all_values_is_trivial(tmp_path):
    deep = milepost.Checkpoint(net=milepost.Checkpoint(inner=milepost.Checkpoint(w=milepost.Variable(1.0))))
    status = deep.restore(deep.save(tmp_path / "ckpt"), ignore="net/inner/w").assert_consumed()
    with pytest.raises(milepost.UnmatchedError, match="no value was restored"):
        status.assert_nontrivial_match()  # the counter alone does not count


def test_a_function_that_raises_is_told_what_it_gets(saved):
    with pytest.raises(UntrackableError, match=r"raised AttributeError(.|\n)*gets each saved name as text"):
        live_like_saved().read(saved, rename=lambda name: name.foo)


def test_loading_does_not_warn_of_a_rename_whose_value_is_left_out(saved):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert milepost.load(saved, rename={"net/gone": "old"}, ignore="net/gone").keys() == {"net"}


@pytest.mark.parametrize(
    ("translation", "left_out", "slot", "expected"),
    [
        (Translation(ignore=["opt"]), [], "v/.OPTIMIZER_SLOT/opt/m", True),
        (Translation(ignore=["v"]), [], "v/.OPTIMIZER_SLOT/opt/m", True),
        (Translation(), ["v/.ATTRIBUTES/VARIABLE_VALUE"], "v/.OPTIMIZER_SLOT/opt/m", True),
        (Translation(), ["w/.ATTRIBUTES/VARIABLE_VALUE"], "v/.OPTIMIZER_SLOT/opt/m", False),
    ],
)
def test_a_slot_variable_is_left_alone_with_its_variable(translation, left_out, slot, expected):
    assert Translated(translation, left_out, renamed_away=left_out).leaves_alone(slot) == expected
