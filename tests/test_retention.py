"""Retention: the rules against a model that applies them one checkpoint at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.retention import ManagedCheckpoint, RetentionPolicy, recover

HOUR = 3600.0

policies = st.builds(RetentionPolicy, st.none() | st.integers(1, 5), st.none() | st.sampled_from([0, 0.5, 1, 2.5]))
gaps = st.lists(st.sampled_from([0.0, 60.0, 20 * 60.0, HOUR, 2.5 * HOUR]), max_size=30)


def checkpoints(gaps: list[float]) -> list[ManagedCheckpoint]:
    return [ManagedCheckpoint(f"ckpt-{number}", sum(gaps[: number + 1])) for number in range(len(gaps))]


class TestApply:
    @given(policies, gaps, st.sampled_from([-HOUR, 0.0, HOUR]))
    def test_agrees_with_popping_one_at_a_time(
        self, policy: RetentionPolicy, gaps: list[float], last_preserved: float
    ) -> None:
        """A list that is popped from the front until it is short enough gives the same."""
        queue = checkpoints(gaps)
        decision = policy.apply(queue, last_preserved)
        preserved, deleted, last = [], [], last_preserved
        while policy.max_to_keep is not None and len(queue) > policy.max_to_keep:
            oldest = queue.pop(0)
            hours = policy.keep_checkpoint_every_n_hours
            if hours and oldest.timestamp >= last + hours * HOUR:
                preserved.append(oldest)
                last = oldest.timestamp
            else:
                deleted.append(oldest)
        assert (list(decision.keep), list(decision.preserve), list(decision.delete)) == (queue, preserved, deleted)
        assert decision.last_preserved == last

    @given(policies, gaps, st.floats(allow_nan=True))
    def test_every_checkpoint_has_one_fate(
        self, policy: RetentionPolicy, gaps: list[float], last_preserved: float
    ) -> None:
        """Keep, preserve and delete share the list among them without loss or repetition."""
        saved = checkpoints(gaps)
        decision = policy.apply(saved, last_preserved)
        fates = [*decision.keep, *decision.preserve, *decision.delete]
        assert sorted(each.prefix for each in fates) == sorted(each.prefix for each in saved)

    @given(policies, gaps.filter(bool), st.floats(allow_nan=True))
    def test_the_newest_is_kept(self, policy: RetentionPolicy, gaps: list[float], last_preserved: float) -> None:
        """No policy lets go of the newest checkpoint."""
        saved = checkpoints(gaps)
        assert policy.apply(saved, last_preserved).keep[-1] == saved[-1]

    @given(policies, gaps)
    def test_saving_one_at_a_time_ends_as_all_at_once(self, policy: RetentionPolicy, gaps: list[float]) -> None:
        """When the policy is applied makes no difference to what it decides."""
        saved = checkpoints(gaps)
        queue: list[ManagedCheckpoint] = []
        preserved: list[ManagedCheckpoint] = []
        last = 0.0
        for each in saved:
            decision = policy.apply([*queue, each], last)
            queue, last = list(decision.keep), decision.last_preserved
            preserved += decision.preserve
        at_once = policy.apply(saved, 0.0)
        assert (tuple(queue), tuple(preserved), last) == (at_once.keep, at_once.preserve, at_once.last_preserved)

    def test_one_in_three_survives_at_twenty_minutes(self) -> None:
        """Two of the newest and one for each hour: every third of those saved every twenty minutes."""
        saved = [ManagedCheckpoint(str(number), number * 20 * 60.0) for number in range(1, 12)]
        decision = RetentionPolicy(2, 1).apply(saved, last_preserved=0.0)
        assert [each.prefix for each in decision.preserve] == ["3", "6", "9"]

    @pytest.mark.parametrize("number", [0, -1])
    def test_keeping_none_is_refused(self, number: int) -> None:
        """A policy that keeps nothing is a mistake."""
        with pytest.raises(ValueError, match="max_to_keep"):
            RetentionPolicy(number)


class TestRecover:
    def test_what_is_not_younger_than_the_last_preserved_is_not_managed(self) -> None:
        """The preserved checkpoint itself, and what is older, stays out of the list."""
        recorded = [ManagedCheckpoint("a", 9.0), ManagedCheckpoint("b", 10.0), ManagedCheckpoint("c", 11.0)]
        recovered = recover(recorded, 10.0, now=20.0)
        assert [each.prefix for each in recovered.managed] == ["c"]
        assert recovered.clock_went_back == 0

    def test_a_clock_that_went_back_leaves_everything_in_place(self) -> None:
        """With all timestamps in the future nothing is managed, so nothing can be deleted too early."""
        recovered = recover([ManagedCheckpoint("a", 30.0), ManagedCheckpoint("b", 40.0)], 25.0, now=20.0)
        assert recovered.managed == ()
        assert (recovered.last_preserved, recovered.clock_went_back) == (20.0, 5.0)

    def test_a_timestamp_in_the_future_becomes_now(self) -> None:
        """A checkpoint cannot have been saved later than now."""
        recovered = recover([ManagedCheckpoint("a", 30.0)], 10.0, now=20.0)
        assert recovered.managed == (ManagedCheckpoint("a", 20.0),)

    def test_a_path_recorded_twice_is_managed_once(self) -> None:
        """The place is that of the first mention, the time that of the last."""
        recorded = [ManagedCheckpoint("a", 1.0), ManagedCheckpoint("b", 2.0), ManagedCheckpoint("a", 3.0)]
        assert recover(recorded, 0.0, now=9.0).managed == (ManagedCheckpoint("a", 3.0), ManagedCheckpoint("b", 2.0))
