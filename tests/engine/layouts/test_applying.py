"""Which values steps take and make, by name, and what is refused before anything is read."""

import warnings

import numpy as np
import pytest

import milepost
from milepost.engine.layouts.applying import Laid, applied
from milepost.engine.layouts.patterns import Pattern
from milepost.engine.layouts.recipes import AsSaved
from milepost.errors import KeyNotFoundError, MismatchError, UnrestoredWarning, UnsupportedError
from milepost.graph.keys import VARIABLE_VALUE, tensor_key
from milepost.layouts import Concatenate, Split, Stack, Transpose, Unstack
from tests.engine.layouts.files import flat, reader_of, saved

JOIN = Concatenate(["*/q", "*/k"], "*/qk")


def values(*names):
    return {name: np.full(2, number) for number, name in enumerate(names)}


@pytest.mark.parametrize(
    ("pattern", "name", "group"),
    [
        ("a/b", "a/b", ("",)),
        ("a.b", "a/b/w", ("/w",)),
        ("a/b", "a.b.w", (".w",)),
        ("a", "ab", None),
        ("a", "b/a", None),
        ("a/b", "a/b..c", None),
        ("a*/b", "a12/b", ("12", "")),
        ("*/b", "a/x/b", None),
        ("**/b", "b", ("", "")),
        ("**/b", "a/x/b/w", ("a/x/", "/w")),
        ("**.*.b", "a.x.b", ("a.", "x", "")),
        ("e/#/w", "e/07/w", None),
        ("e/#/w", "e/10/w", ("",)),
        ("e/#/w", "e/x/w", None),
    ],
)
def test_a_pattern_fits(pattern, name, group):
    fit = Pattern(pattern, "sources").fit(name)
    assert (fit and fit.group) == group


@pytest.mark.parametrize(
    ("pattern", "group", "name"),
    [
        ("a.b", ("/w",), "a/b/w"),
        ("**/x", ("a/", ""), "a/x"),
        ("*/e/#", ("1", "/w"), "1/e/3/w"),
        ("a..b", ("",), "a..b"),
    ],
)
def test_a_pattern_stands_for_a_name(pattern, group, name):
    assert Pattern(pattern, "target").name(group, 3) == name


def test_everything_below_a_name_is_taken():
    made = flat(values("0/q/w", "0/k/w", "0/q/b", "0/k/b", "0/o/w"), convert=[JOIN])
    assert {name: value.tolist() for name, value in made.items()} == {
        "0/o/w": [4, 4],
        "0/qk/w": [0, 0, 1, 1],
        "0/qk/b": [2, 2, 3, 3],
    }


def test_a_pattern_that_begins_anywhere_takes_copies_too():
    names = ["params/q", "params/k", "opt/0/mu/q", "opt/0/mu/k"]
    made = flat(values(*names), convert=[Concatenate(["**/q", "**/k"], "**/qk")])
    assert made.keys() == {"params/qk", "opt/0/mu/qk"}


def test_steps_use_what_earlier_steps_have_made():
    tree = {"q": np.zeros((2, 3)), "k": np.ones((2, 3))}
    made = flat(tree, convert=[Transpose("q", "a"), Transpose("k", "b"), Concatenate(["a", "b"], "c")])
    assert made["c"].shape == (6, 2)


def test_names_may_be_exchanged():
    tree = values("a", "b")
    tree |= {"c": np.zeros((1, 2))}
    made = flat(tree, convert=[Transpose("a", "x"), Transpose("b", "a"), Transpose("x", "b")])
    assert (made["a"].tolist(), made["b"].tolist()) == ([1, 1], [0, 0])


def test_a_result_may_have_the_name_of_what_it_is_made_of():
    assert flat(values("a", "b"), convert=[Concatenate(["a", "b"], "a")])["a"].tolist() == [0, 0, 1, 1]


def test_members_are_ordered_by_their_numbers():
    made = flat(
        values(*(f"e/{number}/w" for number in (10, 2, 0, 1, 9, 3, 8, 4, 7, 5, 6))), convert=[Stack("e/#", "e")]
    )
    assert made["e/w"][:, 0].tolist() == [2, 3, 1, 5, 7, 9, 10, 8, 6, 4, 0]


def test_a_step_that_fits_nothing_is_refused_with_near_names():
    with pytest.raises(KeyNotFoundError, match="fits no saved name") as caught:
        reader_of(values("attn/query/w", "attn/key/w"), [Transpose("attn/quer")])
    assert caught.value.key == "attn/quer"
    assert "did you mean 'attn/query'" in caught.value.remedy


def test_a_step_that_lacks_some_of_its_values_names_them():
    with pytest.raises(KeyNotFoundError, match="needs values that the file does not have") as caught:
        reader_of(values("0/q/w", "0/k/w", "0/q/b"), [JOIN])
    assert caught.value.key == "0/k/b"
    assert caught.value.expected.endswith("beside 0/q/b")


def test_a_missing_member_is_named():
    with pytest.raises(KeyNotFoundError) as caught:
        reader_of(values("e/0/w", "e/3/w"), [Stack("e/#/w", "e/w")])
    assert (caught.value.key, caught.value.expected) == (
        "e/1/w",
        "a value of this name, and of e/2/w, beside e/0/w, e/3/w",
    )


@pytest.mark.parametrize(
    "steps",
    [
        [Transpose("a", "c")],
        [Transpose("a", "x"), Transpose("b", "x")],
        [Split("a", ["x", "c"])],
        [Unstack("a", ["b", "x"])],
    ],
)
def test_two_values_of_one_name_are_refused(steps):
    with pytest.raises(UnsupportedError, match="two values the same name"):
        reader_of(values("a", "b", "c"), steps)


def test_a_value_that_fits_two_names_of_a_step_makes_neither():
    with pytest.raises(KeyNotFoundError):
        reader_of(values("a/b"), [Concatenate(["**/a", "**/b"], "**/c")])


def test_text_is_refused():
    with pytest.raises(UnsupportedError, match="no array of numbers") as caught:
        reader_of({"a/w": np.zeros(2), "a/name": "x"}, [Transpose("a")])
    assert caught.value.key == "a/name"


def test_a_value_keeps_the_place_of_what_it_is_made_of():
    with reader_of(values("a", "b", "c", "d")) as reader:
        laid = {name: Laid(AsSaved(reader, tensor_key(name, VARIABLE_VALUE)), origin=name) for name in "abcd"}
        order = [*applied(laid, [Stack(["b", "d"], "e")], "file")]
    assert order == ["a", "e", "c"]


MOMENTS = ("params/l/q", "params/l/k", "opt/0/mu/l/q", "opt/0/mu/l/k")
STAYS = r"stay as they are: opt/0/mu/l/q\. .*begin the names of the steps with \*\*/"


def test_moments_that_stay_as_they_are_are_told(tmp_path):
    """A transpose of a square parameter would leave its moments in the other layout, and their shape does not show it."""
    path, options = saved(values(*MOMENTS))
    steps = [Transpose("params/l/q")]
    with pytest.warns(UnrestoredWarning, match=STAYS):
        flat(path, options, convert=steps)
    with pytest.warns(UnrestoredWarning, match=STAYS):
        milepost.convert(path, tmp_path / "a.npz", options=options, convert=steps)
    np.savez(tmp_path / "b.npz", **values(*MOMENTS))
    with pytest.warns(UnrestoredWarning, match=STAYS):
        milepost.load(str(tmp_path / "b.npz"), convert=steps)
    variable = milepost.Variable(np.zeros(2, np.int64))
    moments = milepost.Checkpoint(mu=milepost.Checkpoint(l=milepost.Checkpoint(q=variable)))
    with pytest.warns(UnrestoredWarning, match=STAYS):
        milepost.Checkpoint(opt=[moments]).read(path, options, convert=steps).expect_partial()


@pytest.mark.parametrize(
    ("steps", "only"),
    [
        ([Transpose("**/l/q")], None),
        ([Transpose("params/l/q"), Transpose("opt/0/mu/l/q")], None),
        ([Transpose("params/l/q")], "params"),
    ],
)
def test_moments_that_are_converted_or_left_out_are_not_told(steps, only):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flat(values(*MOMENTS), convert=steps, only=only)


def test_nothing_is_refused_that_is_left_out():
    """Steps are carried out on all names; what they make may be left out."""
    assert flat(values("a", "b", "x"), convert=[Concatenate(["a", "b"], "c")], only="x").keys() == {"x"}


def test_a_wrong_step_names_the_file():
    with pytest.raises(MismatchError) as caught:
        reader_of({"a": np.zeros(2), "b": np.zeros(3)}, [Stack(["a", "b"], "c")])
    assert (caught.value.key, caught.value.file) == ("a, b", "state")
