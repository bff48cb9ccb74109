"""Reads data through a `Feed` as a trainer does, interrupts it at every place, and reads on with fresh objects."""

import contextlib
import random
import sys
from collections import deque

import numpy as np

from milepost.callbacks.data.batches import leaves
from milepost.callbacks.data.resumable import Trainer, make_feed
from milepost.callbacks.plain_data import from_json, random_state, set_random_state, to_json

AT_ONCE = "at once"
"""Saves again before anything is read."""


class Run:
    """One process of a run over ``make()``.

    Args:
        make: Makes the data, or a tuple of arrays.
        epochs: Of the whole run.
        steps: In an epoch, or None for passes.
        ahead: Batches that the trainer reads further than it trains.
        on_epoch: Called with the data and the number of the epoch that begins.
        batch_size: For arrays.
    """

    def __init__(self, make, epochs=3, steps=None, ahead=0, on_epoch=None, batch_size=2):
        random.seed(0)
        np.random.seed(0)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(0)
        self.data = make()
        self._epochs, self._steps, self._ahead, self._on_epoch = epochs, steps, ahead, on_epoch
        data = self.data if isinstance(self.data, tuple) else (self.data, None, None)
        self.feed, _ = make_feed(data, batch_size, True, 1, Trainer("float32", False))

    def read(self, start=None, stop=None):
        """Reads from a saved place until ``stop``: after so many batches, after an epoch, or at once.

        Returns:
            The batches, and the place as text, or None at the end of the run.
        """
        feed, seen = self.feed, []
        saved = None if start is None else from_json(start)
        first, skipped = (0, 0) if saved is None else (saved["epoch"], saved["batch"])
        feed.start(self._steps or feed.length)
        if saved is None:
            feed.rewind()
        else:
            feed.check(saved["place"])
            feed.resume(saved["place"], skipped, None)
            set_random_state(saved["random"])
        if stop == AT_ONCE and saved is not None:
            return seen, self._text(first, skipped)
        iterator = None
        for epoch in range(first, self._epochs):
            if self._on_epoch:
                self._on_epoch(self.data, epoch)
            feed.begin_epoch()
            if iterator is None or not self._steps:
                iterator, waiting, ended = iter(feed), deque(), False
            done = skipped if epoch == first else 0
            if done:
                feed.caught_up()
            while (limit := self._steps or feed.length) is None or done < limit:
                while len(waiting) <= self._ahead and not ended:
                    if not self._steps and limit is not None and done + len(waiting) >= limit:
                        break
                    try:
                        waiting.append(next(iterator))
                    except StopIteration:
                        ended = True
                if not waiting:
                    iterator = None
                    break
                seen.append((epoch, [np.asarray(leaf).tobytes() for leaf in leaves(waiting.popleft())]))
                done += 1
                feed.trained(1)
                if stop == ("batch", len(seen)):
                    return seen, self._text(epoch, done)
            if stop == ("epoch", epoch):
                return seen, self._text(epoch + 1, 0)
        return seen, None

    def _text(self, epoch, batch):
        state = {"random": random_state(), "place": self.feed.place(), "epoch": epoch, "batch": batch}
        return to_json(state, "fit")


def interrupted(make, first, others, **options):
    """All batches of a run that is interrupted and resumed several times in a row."""
    seen, text = Run(make, **options).read(None, first)
    for stop in (*others, None):
        more, again = Run(make, **options).read(text, stop)
        seen += more
        if again is None:
            break
        text = again
    return seen


def differences(make, **options):
    """The interruptions after which other batches are read than in a whole run, which itself reads in every epoch."""
    whole, _ = Run(make, **options).read()
    epochs = options.get("epochs", 3)
    assert {epoch for epoch, _ in whole} == set(range(epochs))
    assert whole[0] != whole[1], "batches are told from each other"
    places = [
        *(("batch", number + 1) for number in range(len(whole))),
        *(("epoch", epoch) for epoch in range(epochs - 1)),
    ]
    found = []
    for number, place in enumerate(places):
        others = ([AT_ONCE, ("batch", 1), AT_ONCE], [("batch", 2), AT_ONCE, ("batch", 3)])[number % 2]
        with contextlib.suppress(StopIteration):
            if interrupted(make, place, others, **options) != whole:
                found.append(place)
    return found
