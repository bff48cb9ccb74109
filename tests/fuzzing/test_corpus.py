"""Every input that the search for hostile files has kept: a result or one of milepost's errors, in little time and memory."""

from __future__ import annotations

import pytest

import milepost
from tests.fuzzing import corpus, outcome
from tests.fuzzing.outcome import LONGEST, TooMuchError, attempt, check
from tests.fuzzing.targets import TARGETS, chunks_of, joined

SIZE = 1 << 20
"""The most bytes that all archives may have."""
MEASURED = 5
"""Inputs of each format whose memory is measured: the longest ones."""


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_has_a_result_or_an_error_of_milepost(target: str) -> None:
    inputs = corpus.load(target)
    assert inputs
    for data in [b"", *inputs]:
        assert len(data) <= LONGEST
        check(TARGETS[target].read, data)


@pytest.mark.parametrize("target", TARGETS)
def test_the_longest_inputs_take_little_memory(target: str) -> None:
    for data in sorted(corpus.load(target), key=len)[-MEASURED:]:
        check(TARGETS[target].read, data, memory=True)


def test_the_corpus_is_small_and_has_no_format_that_is_gone() -> None:
    archives = list(corpus.FOLDER.iterdir())
    assert {path.name for path in archives} == {f"{target}.zip" for target in TARGETS}
    assert sum(path.stat().st_size for path in archives) < SIZE


class TestOutcome:
    """The check notices what it is there for."""

    def test_a_foreign_error_is_noticed(self) -> None:
        with pytest.raises(IndexError):
            check(lambda data: data[1], b"")

    def test_a_foreign_warning_is_noticed(self) -> None:
        with pytest.raises(DeprecationWarning):
            check(lambda data: data.decode("unicode_escape"), rb"\c")

    def test_much_memory_is_noticed(self) -> None:
        with pytest.raises(TooMuchError, match="MiB"):
            check(lambda data: bytes(100 << 20), b"", memory=True)

    def test_much_time_is_noticed(self, monkeypatch) -> None:
        monkeypatch.setattr(outcome, "SECONDS", 0.01)
        with pytest.raises(TooMuchError, match="seconds"):
            check(lambda data: sum(range(3_000_000)), b"")

    def test_an_error_of_milepost_is_an_answer(self) -> None:
        def refuse() -> None:
            raise milepost.CorruptCheckpointError("no")

        assert not attempt(refuse)

    def test_chunks_are_divided_as_they_were_joined(self) -> None:
        assert chunks_of(joined([b"a", b"", b"bcd"])) == [b"a", b"", b"bcd"]
        assert chunks_of(b"\xff\xffab\0") == [b"ab\0"]


def test_of_inputs_that_reach_the_same_the_shortest_is_kept() -> None:
    read = TARGETS["coded"].read
    assert corpus.fewest(read, [b"\x01\x02", b"\x01\x03", b"", b"\x01\x02"]) == [b"", b"\x01\x02"]


def test_what_a_search_keeps_is_the_same_archive_every_time(tmp_path) -> None:
    corpus.store("a", [b"2", b"1", b"2"], tmp_path / "x")
    corpus.store("a", [b"1", b"2"], tmp_path / "y")
    assert sorted(corpus.load("a", tmp_path / "x")) == [b"1", b"2"]
    assert (tmp_path / "x" / "a.zip").read_bytes() == (tmp_path / "y" / "a.zip").read_bytes()
    assert corpus.load("b", tmp_path / "x") == []
