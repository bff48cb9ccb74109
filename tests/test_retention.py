"""Retention: the rules against a model that applies them one checkpoint at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import UnsupportedError
from milepost.retention import (
    Best,
    EveryHours,
    EverySteps,
    ManagedCheckpoint,
    Newest,
    Policy,
    Recent,
    Steps,
    Unmeasured,
)
from milepost.retention.policy import AnyOf
from milepost.retention.rules import RetentionPolicy, recover

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

    def test_a_time_in_the_future_stays_as_recorded(self) -> None:
        """Policies see how far apart checkpoints were saved, also by a clock that was ahead."""
        recorded = [ManagedCheckpoint("a", 30.0), ManagedCheckpoint("b", 40.0)]
        assert recover(recorded, 10.0, now=20.0).managed == tuple(recorded)

    def test_a_path_recorded_twice_is_managed_once(self) -> None:
        """The place is that of the first mention, the time that of the last."""
        recorded = [ManagedCheckpoint("a", 1.0), ManagedCheckpoint("b", 2.0), ManagedCheckpoint("a", 3.0)]
        assert recover(recorded, 0.0, now=9.0).managed == (ManagedCheckpoint("a", 3.0), ManagedCheckpoint("b", 2.0))


SAVED = st.lists(
    st.tuples(
        st.sampled_from([-HOUR, 0.0, 60.0, HOUR, 2.5 * HOUR]),
        st.none() | st.fixed_dictionaries({}, optional={"loss": st.floats(), "acc": st.sampled_from([0.0, 0.5, 1.0])}),
        st.booleans(),
    ),
    max_size=15,
)
SIMPLE = st.one_of(
    st.builds(Newest, st.integers(1, 4)),
    st.builds(EveryHours, st.sampled_from([0.5, 1, 3])),
    st.builds(Recent, st.sampled_from([0.5, 3])),
    st.builds(EverySteps, st.integers(1, 4), st.booleans()),
    st.builds(Steps, st.lists(st.integers(0, 15))),
    st.builds(Best, st.integers(1, 3), st.sampled_from(["loss", "acc"]), st.sampled_from(["min", "max"])),
    st.builds(Unmeasured, st.sampled_from(["loss", "acc"])),
)
JOINED = SIMPLE | st.builds(lambda one, other: one | other, SIMPLE, SIMPLE)


def with_metrics(drawn: list[tuple[float, Any, bool]]) -> list[ManagedCheckpoint]:
    now, found = 1e6, []
    for number, (gap, metrics, pinned) in enumerate(drawn):
        now += gap
        found.append(ManagedCheckpoint(f"ckpt-{number}", now, metrics, pinned))
    return found


class TestPolicies:
    @given(JOINED, SAVED)
    def test_to_decide_again_changes_nothing(self, policy: Policy, drawn: list[Any]) -> None:
        """What a policy has kept it keeps, when the others are gone: a manager that starts anew deletes nothing more."""
        saved = with_metrics(drawn)
        kept = [saved[place] for place in sorted(policy.kept(saved))]
        assert sorted(policy.kept(kept)) == list(range(len(kept)))

    @given(SIMPLE, SIMPLE, SAVED)
    def test_joined_policies_keep_what_one_of_them_keeps(self, one: Policy, other: Policy, drawn: list[Any]) -> None:
        """No less and no more, in any order, with the reasons of both."""
        saved = with_metrics(drawn)
        assert (
            set((one | other).kept(saved)) == set((other | one).kept(saved)) == {*one.kept(saved), *other.kept(saved)}
        )
        for place, reason in one.kept(saved).items():
            assert reason in (one | other).kept(saved)[place]

    @given(st.integers(1, 4), st.sampled_from(["min", "max"]), SAVED)
    def test_the_best_are_better_than_the_rest(self, n: int, mode: Any, drawn: list[Any]) -> None:
        """As many as there are with a finite value, up to n; none without one."""
        saved = with_metrics(drawn)
        values = {
            place: (each.metrics or {})["loss"] * (1 if mode == "min" else -1)
            for place, each in enumerate(saved)
            if each.metrics and math.isfinite(each.metrics.get("loss", math.nan))
        }
        kept = set(Best(n, by="loss", mode=mode).kept(saved))
        assert kept <= set(values)
        assert len(kept) == min(n, len(values))
        assert all(values[one] <= values[other] for one in kept for other in set(values) - kept)

    @given(SAVED, st.sampled_from([0.5, 1, 3]))
    def test_no_period_is_without_a_checkpoint(self, drawn: list[Any], hours: float) -> None:
        """Of the checkpoints that go, each has one that stays within the hours before it."""
        saved = with_metrics(drawn)
        kept = set(EveryHours(hours).kept(saved))
        for place in set(range(len(saved))) - kept:
            before = saved[max(other for other in kept if other < place)]
            assert 0 <= saved[place].timestamp - before.timestamp < hours * HOUR

    @given(st.none() | st.integers(1, 3), st.none() | st.just(1.0), st.none() | JOINED, SAVED)
    def test_the_plan_is_what_is_done(self, newest: Any, hours: Any, keep: Any, drawn: list[Any]) -> None:
        """The newest and the pinned stay; all have a reason; a list that was cut stays as it is."""
        saved, policy = with_metrics(drawn), RetentionPolicy(newest, hours, keep)
        decision, plan = policy.apply(saved, 0.0), policy.plan(saved, 0.0)
        assert [each.path for each in plan] == [each.prefix for each in saved]
        assert plan.deleted == [each.step for each in decision.delete]
        assert plan.kept == sorted(each.step for each in (*decision.keep, *decision.preserve))
        assert all(each.reasons and all(each.reasons) for each in plan)
        assert not any(each.pinned for each in (*decision.delete, *decision.preserve))
        assert list(decision.keep)[-1:] == saved[-1:]
        assert policy.apply(decision.keep, decision.last_preserved).keep == decision.keep
        if newest is None and keep is None:
            assert plan.deleted == []

    def test_the_function_of_a_program_ranks(self) -> None:
        """Where it raises for lack of a metric, the checkpoint is not among the best."""
        saved = [ManagedCheckpoint(f"ckpt-{n}", n, {"a": n, **({"b": 1} if n else {})}) for n in range(3)]
        assert set(Best(3, by=lambda metrics: metrics["a"] / metrics["b"], mode="max").kept(saved)) == {1, 2}

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Newest(0),
            lambda: Newest(True),
            lambda: EveryHours(0),
            lambda: EveryHours(math.nan),
            lambda: Recent("1"),  # type: ignore[arg-type]
            lambda: EverySteps(1.5),  # type: ignore[arg-type]
            lambda: Steps(5),  # type: ignore[arg-type]
            lambda: Steps(["5"]),  # type: ignore[list-item]
            lambda: Best(0, by="loss", mode="min"),
            lambda: Best(1, by="loss", mode="least"),  # type: ignore[arg-type]
            lambda: Best(1, by=3, mode="min"),  # type: ignore[arg-type]
            lambda: AnyOf(Newest(1), 5),  # type: ignore[arg-type]
        ],
    )
    def test_wrong_arguments_are_refused(self, make: Callable[[], Policy]) -> None:
        """With the name of the argument."""
        with pytest.raises(UnsupportedError) as caught:
            make()
        assert caught.value.key
        assert caught.value.expected
