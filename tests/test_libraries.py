"""The page of whole libraries is what was found, and nothing that was found is lost without a word."""

import pytest

from benchmarks.libraries import catalogue, compare, table, verdict
from benchmarks.libraries.__main__ import main

published = pytest.mark.skipif(not table.RESULTS.exists(), reason="results are not in a source distribution")
SAVED = {"account": {}, "own": "", "milepost": "", "warned": ""}
RIGHT = {"said": "", "warned": "", "at once": "", "later": ""}


@published
def test_the_page_says_what_was_found():
    assert table.PAGE.read_text() == table.page(table.results()), "run: python -m benchmarks.libraries"


@published
def test_nothing_differs_without_a_word():
    assert table.silent(table.results()) == []


@published
def test_every_outcome_is_one_that_the_page_explains():
    found = {each["outcome"] for tried in table.results().values() for each in tried["objects"].values()}
    assert found <= set(verdict.OUTCOMES)


class TestVerdict:
    """What the two processes found, judged."""

    def test_the_same_state_and_outputs_are_exact(self):
        assert verdict.judged(SAVED, {"milepost": RIGHT, "own": RIGHT})["outcome"] == verdict.EXACT

    @pytest.mark.parametrize("where", ["at once", "later"])
    def test_what_only_milepost_loses_is_silent(self, where):
        found = {"milepost": {**RIGHT, where: "/step: 0 instead of 3"}, "own": RIGHT}
        assert verdict.judged(SAVED, found)["outcome"] == verdict.SILENT

    def test_lost_state_is_silent_also_where_both_go_on_differently(self):
        found = {"milepost": {**RIGHT, "at once": "/step", "later": "loss"}, "own": {**RIGHT, "later": "loss"}}
        assert verdict.judged(SAVED, found)["outcome"] == verdict.SILENT

    def test_what_both_lose_is_no_less_than_the_librarys_own(self):
        lost = {**RIGHT, "later": "outputs/3"}
        assert verdict.judged(SAVED, {"milepost": lost, "own": lost})["outcome"] == verdict.OWN_TOO

    def test_an_error_of_the_save_is_a_refusal(self):
        saved = {**SAVED, "milepost": "UntrackableError: would not be saved"}
        assert verdict.judged(saved, {"milepost": {}, "own": RIGHT})["outcome"] == verdict.REFUSED

    def test_a_failed_assertion_is_a_refusal(self):
        found = {"milepost": {**RIGHT, "said": "UnmatchedError", "at once": "/step"}, "own": RIGHT}
        assert verdict.judged(SAVED, found)["outcome"] == verdict.REFUSED

    def test_a_warning_is_no_silence(self):
        found = {"milepost": {**RIGHT, "at once": "/step"}, "own": RIGHT}
        assert verdict.judged({**SAVED, "warned": "not saved"}, found)["outcome"] == verdict.WARNED

    def test_what_cannot_be_made_is_not_tried(self):
        assert verdict.judged({"untried": "ImportError"}, {})["outcome"] == verdict.UNTRIED


class TestDifference:
    """Where two results differ first."""

    @pytest.mark.parametrize(
        ("found", "expected"),
        [(1, 1.0), (True, 1), (0.0, -0.0), ([1, 2], [1]), ({"a": 1}, {}), ("1", 1), (None, "None")],
    )
    def test_other_values_types_and_sizes_differ(self, found, expected):
        assert compare.difference(compare.plain({"x": found}), compare.plain({"x": expected})).startswith("/x")

    def test_the_same_does_not(self):
        value = {"a": [1, 2.5, None], (1, 2): {"b": float("nan")}}
        assert compare.difference(compare.plain(value), compare.plain(value)) == ""

    def test_an_empty_mapping_holds_nothing(self):
        assert compare.difference(compare.plain({}), compare.plain({"state": {}})) == ""

    def test_arrays_of_one_size_with_other_types_or_shapes_differ(self):
        numpy = pytest.importorskip("numpy")
        plain = [compare.plain(numpy.zeros(4, kind).reshape(shape)) for kind in "if" for shape in ((4,), (2, 2))]
        assert len(set(plain)) == 4

    def test_tensors_that_differ_in_one_bit_differ(self):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        one, other = torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0])
        assert compare.difference(compare.plain(one), compare.plain(other))
        assert not compare.difference(compare.plain(one), compare.plain(one.clone()))


def test_a_library_that_is_not_installed_is_named_with_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(catalogue, "is_installed", lambda name: False)
    main(["timm"])
    assert "NOT TRIED: timm; install timm torchvision torch" in capsys.readouterr().err
