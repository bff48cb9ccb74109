"""The position of a feed whose trainer reads batches ahead. No framework is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from milepost.callbacks.data.feed import Feed
from milepost.callbacks.data.iterables import StatefulSource


class Noisy:
    """Batches of a pass of three, each with a number that is drawn when it is made."""

    def __init__(self) -> None:
        self.passes = self.made = 0

    def __iter__(self) -> Any:
        while self.made < 3:
            self.made += 1
            yield self.passes, self.made, np.random.random()
        self.passes, self.made = self.passes + 1, 0

    def get_state(self) -> Any:
        return [self.passes, self.made]

    def set_state(self, state: Any) -> None:
        self.passes, self.made = state


def new_feed(steps: int | None = None, **options: Any) -> Feed:
    data = Noisy()
    feed = Feed(StatefulSource(data, (data.get_state, data.set_state)), **options)
    feed.start(steps)
    return feed


def resumed(place: dict[str, Any], steps: int | None = None, **options: Any) -> Any:
    """What is read next from a position, in a program whose random state is another one."""
    np.random.seed(99)
    feed = new_feed(steps, **options)
    feed.resume(place, 0, lambda tracked: None)
    return iter(feed)


def read(iterator: Any, count: int) -> list[Any]:
    return [next(iterator) for _ in range(count)]


def test_batches_that_were_read_ahead_are_drawn_anew_as_they_were() -> None:
    """The random state of the position is that when the next batch was read, and not that of the save."""
    np.random.seed(1)
    feed = new_feed()
    batches = read(iter(feed), 3)
    np.random.seed(2)
    feed.trained(1)
    place = feed.place()
    assert read(resumed(place), 2) == batches[1:]


def test_without_batches_read_ahead_the_random_state_is_not_the_feeds_concern() -> None:
    feed = new_feed()
    read(iter(feed), 2)
    feed.trained(2)
    assert "random" not in feed.place()


@pytest.mark.parametrize("trained", range(1, 6))
def test_positions_of_an_earlier_pass_are_kept_while_the_next_one_is_read(trained: int) -> None:
    np.random.seed(1)
    feed = new_feed(2, one_iterator=True)
    batches = read(iter(feed), 6)
    assert [batch[:2] for batch in batches] == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    feed.trained(trained)
    place = feed.place()
    assert (place["pass"], place["index"], place["ended"]) == (trained // 4, (trained - 1) % 3 + 1, trained == 3)
    (following,) = read(resumed(place, 2, one_iterator=True), 1)
    assert following[:2] == batches[trained][:2]
    if trained != 3:
        assert following == batches[trained]


def test_positions_before_the_last_trained_batch_are_forgotten() -> None:
    """There is one for each batch that was read ahead, however long the run is."""
    feed = new_feed(2, one_iterator=True)
    iterator = iter(feed)
    read(iterator, 3)
    for _ in range(10):
        read(iterator, 1)
        feed.trained(1)
    assert len(feed._places) == 3
    feed.trained(3)
    assert feed.place()["pass"] == 4
