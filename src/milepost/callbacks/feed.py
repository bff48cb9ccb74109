"""`Feed`: hands batches to ``fit()``, and knows where in the data those that were trained on end.

Trainers may read ahead of what they train on. While they do, the place after each batch is noted before the next one is
read; while they do not, nothing is noted, and saving asks the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from milepost.callbacks.sources import Attach, Source
from milepost.errors import UnsupportedError

PLACEHOLDER: Final = None
"""What trainers get that read a batch for every step, for the steps that are not trained again."""


class Data(Protocol):
    """What a run reads: a `Feed`, or a ``tf.data.Dataset`` that is observed."""

    @property
    def is_read(self) -> bool:
        """Whether the trainer has read any batch."""
        ...

    def start(self, steps: int | None) -> None:
        """Begins a call of ``fit()`` whose epochs have so many batches, if that is known."""
        ...

    def rewind(self) -> None:
        """Goes to the beginning; what was read to find out about shapes is forgotten."""
        ...

    def resume(self, place: dict[str, Any], skipped: int, attach: Attach) -> None:
        """Goes to a place that `place` returned, from where the trainer's next iterator reads on.

        Args:
            place: The place.
            skipped: How many steps of the trainer come before it reads on.
            attach: Gives an object its saved state, for data whose state is in the checkpoint itself.
        """
        ...

    def caught_up(self) -> None:
        """Takes note that all skipped steps are over; what was trained is not to be trained again."""
        ...

    def trained(self, batches: int) -> None:
        """Takes note that the trainer is done with so many more batches."""
        ...

    def place(self) -> dict[str, Any]:
        """The place after the last batch that was trained on, as plain data.

        Raises:
            UnsupportedError: It is not known.
        """
        ...

    def tracked(self) -> Any:
        """An object to be saved with the checkpoint, or None."""
        ...

    def stand_in(self) -> Any:
        """An object like `tracked` that may be restored at any time, or None."""
        ...


class Feed:
    """One run's way through a source.

    Args:
        source: Where batches come from.
        placeholders: Whether the trainer reads batches for steps that it was told to pass over.
    """

    def __init__(self, source: Source, placeholders: bool = False) -> None:
        self.source = source
        self._has_placeholders = placeholders
        self._initial = source.save()
        self._number = -1
        self._index = 0
        self._ended = False
        self._handed = 0
        self._trained = 0
        self._places: dict[int, dict[str, Any]] = {}
        self._pending: dict[str, Any] | None = None
        self._skipped = 0
        self._token = object()

    @property
    def length(self) -> int | None:
        """Batches in a pass, if that is known."""
        return self.source.length

    def start(self, steps: int | None) -> None:
        pass

    def rewind(self) -> None:
        self.source.reset(self._initial)
        self._nowhere()

    def resume(self, place: dict[str, Any], skipped: int, attach: Attach) -> None:
        self.source.check(place["source"])
        self._nowhere()
        self._pending = place
        self._skipped = skipped
        self._attach = attach

    def __iter__(self) -> Iterator[Any]:
        """An iterator for the trainer: the rest of the pass where it resumes, then whole passes."""
        if self._has_placeholders:
            for _ in range(self._skipped):
                yield PLACEHOLDER
        self._skipped = 0
        self._begin()
        token = self._token
        while token is self._token:  # else a later iterator has taken over
            if self._handed > self._trained:
                self._places[self._handed] = self._here()
            try:
                batch = self.source.next()
            except StopIteration:
                self._ended = True
                return
            self._index += 1
            self._handed += 1
            yield tuple(batch) if isinstance(batch, list) else batch

    def caught_up(self) -> None:
        self._skipped = 0

    def trained(self, batches: int) -> None:
        self._trained = min(self._trained + batches, self._handed)
        for count in [count for count in self._places if count < self._trained]:
            del self._places[count]

    def place(self) -> dict[str, Any]:
        if self._pending is not None:
            return self._pending
        if self._trained == self._handed:
            return self._here()
        if self.source.tracked() is not None:
            raise UnsupportedError(
                "the trainer has read further than it has trained, and this data can tell where it is only now",
                key="data",
                found=f"{self._handed - self._trained} batches read ahead",
                remedy="give it get_state() and set_state()",
            )
        return self._places[self._trained]

    @property
    def is_read(self) -> bool:
        return self._handed > 0

    def tracked(self) -> Any:
        return self.source.tracked()

    def stand_in(self) -> Any:
        return self.source.stand_in()

    def _nowhere(self) -> None:
        self._number = -1
        self._index = self._handed = self._trained = self._skipped = 0
        self._ended = False
        self._places = {}
        self._pending = None
        self._token = object()

    def _begin(self) -> None:
        self._token = object()
        place, self._pending = self._pending, None
        if place is not None:
            self._number, self._index, self._ended = place["pass"], place["index"], place["ended"]
            if self._number >= 0:
                self.source.load(place["source"], self._number, self._index, self._ended, self._attach)
            if not self._ended:
                return
        self._number += 1
        self._index = 0
        self._ended = False
        self.source.begin(self._number)

    def _here(self) -> dict[str, Any]:
        ended = self._ended or (self.length is not None and self._index >= self.length)
        return {"pass": self._number, "index": self._index, "ended": ended, "source": self.source.save()}
