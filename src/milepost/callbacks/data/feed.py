"""`Feed`: passes batches to ``fit()``, and knows the position after the last trained batch.

A trainer may read batches ahead. In that case the position after each batch is recorded before the next one is read.
Otherwise nothing is recorded, and a save asks the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from milepost.callbacks.data.sources import Attach, Source
from milepost.callbacks.plain_data import random_state, set_random_state
from milepost.errors import MismatchError, UnsupportedError, warn

ENDLESS: Final = 1 << 62
"""More batches than any run reads."""

PLACEHOLDER: Final = None
"""The batch for a step that is not trained again, for trainers that read a batch for every step."""


class Data(Protocol):
    """The data of a run: a `Feed`, or an observed ``tf.data.Dataset``.

    Attributes:
        counted_at_end: What `milepost.callbacks.generations.Generation.counted_at_end` returns for the model.
    """

    counted_at_end: int

    @property
    def is_read(self) -> bool:
        """Whether the trainer has read any batch."""
        ...

    @property
    def length(self) -> int | None:
        """The number of batches in a pass, if it is known."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether all batches of the pass have been trained. False if that is not known."""
        ...

    @property
    def ends_epochs(self) -> bool:
        """Whether an epoch must end with the pass, before all its steps. The trainer cannot see this in the middle of a pass."""
        ...

    def start(self, steps: int | None, usual: int | None = None) -> None:
        """Begins a call of ``fit()``, before the trainer asks for the length.

        Args:
            steps: The number of steps in an epoch, if the program has given it.
            usual: The number of batches in earlier passes of the run, if only they tell it.
        """
        ...

    def begin_epoch(self) -> None:
        """Records that an epoch begins."""
        ...

    def rewind(self) -> None:
        """Returns to the beginning, if batches were read only to find their shapes."""
        ...

    def check(self, place: dict[str, Any]) -> None:
        """Checks that a position fits this data. Changes nothing.

        Raises:
            MismatchError: It is a position in different data.
        """
        ...

    def resume(self, place: dict[str, Any], skipped: int, attach: Attach) -> None:
        """Returns to a position from `place`. The next iterator of the trainer continues from there.

        Args:
            place: The position.
            skipped: The number of steps that the trainer skips before it reads on.
            attach: Restores the state of an object, for data whose state is in the checkpoint itself.
        """
        ...

    def caught_up(self) -> None:
        """Records that all skipped steps are over."""
        ...

    def trained(self, batches: int) -> int:
        """Records that the trainer has trained more batches.

        Args:
            batches: Their number; it may be too large at the end of the data.

        Returns:
            Their actual number.
        """
        ...

    def place(self, *, between_epochs: bool = False) -> dict[str, Any]:
        """The position after the last trained batch, as plain data.

        Args:
            between_epochs: Whether the epoch is over.

        Raises:
            UnsupportedError: It is not known.
        """
        ...

    def tracked(self) -> Any:
        """The object to save with the checkpoint, or None."""
        ...

    def stand_in(self) -> Any:
        """An object like `tracked` that can be restored at any time, or None."""
        ...


def other_kind(expected: str, found: str) -> MismatchError:
    """The error for a position in a different kind of data."""
    return MismatchError(
        "the data is of a different kind than when this checkpoint was saved",
        key="data",
        expected=f"what {expected} reads",
        found=f"what {found} reads",
        remedy="resume with the same data, or use another directory",
    )


def told_length(data: Data, usual: int | None) -> int | None:
    """The number of batches in a pass that a trainer is told.

    It counts batches from the start of ``fit()``, which may be in the middle of a pass. So it is told of no end where
    epochs end with passes; the callback ends these epochs.

    Args:
        data: The data.
        usual: The number of batches in earlier passes, which trainers expect again.
    """
    if data.ends_epochs:
        return ENDLESS
    if data.length is not None or usual is None or not data.counted_at_end:
        return usual if data.length is None else data.length
    return (usual // data.counted_at_end + 1) * data.counted_at_end


class Feed:
    """The batches of one run from a source.

    Each epoch is a pass, unless ``fit()`` gets a number of steps per epoch. Then a pass continues in the next epoch.

    Args:
        source: The source of the batches.
        placeholders: Whether the trainer reads batches for steps that it skips.
        one_iterator: Whether the trainer reads all epochs from one iterator if epochs and passes differ in length, and
            ends the run at the end of that iterator.
    """

    def __init__(self, source: Source, placeholders: bool = False, one_iterator: bool = False) -> None:
        self.source = source
        self.counted_at_end = 0
        self._has_placeholders = placeholders
        self._one_iterator = one_iterator
        self._initial = source.save()
        self._steps: int | None = None
        self._usual: int | None = None
        self._number = -1
        self._index = self._handed = self._trained = self._skipped = self._in_epoch = 0
        self._ended = False
        self._places: dict[int, dict[str, Any]] = {}
        self._pending: dict[str, Any] | None = None
        self._has_caught_up = self._is_left = False
        self._ahead: tuple[Any, dict[str, Any]] | None = None
        self._token = object()

    @property
    def length(self) -> int | None:
        """The number of batches in a pass, if it is known."""
        return self.source.length

    @property
    def ends_epochs(self) -> bool:
        return self._goes_on and self.length is not None and not self._one_iterator

    @property
    def told_length(self) -> int | None:
        """The number of batches in a pass that the trainer is told."""
        return told_length(self, self._usual)

    def start(self, steps: int | None, usual: int | None = None) -> None:
        self._steps = steps
        self._usual = usual or self._usual

    def begin_epoch(self) -> None:
        self._is_left = self._is_left or self._is_unread()
        self._in_epoch = self._handed - self._trained + self._skipped

    def rewind(self) -> None:
        self.source.reset(self._initial)
        self._nowhere()

    def check(self, place: dict[str, Any]) -> None:
        kind = place.get("kind", type(self.source).__name__)
        if "source" not in place or kind != type(self.source).__name__:
            raise other_kind(place.get("kind", "tf.data.Dataset"), type(self.source).__name__)
        self.source.check(place["source"])

    def resume(self, place: dict[str, Any], skipped: int, attach: Attach) -> None:
        self.check(place)
        self._nowhere()
        self._skipped = skipped
        self._usual = place.get("usual")
        if place["pass"] < 0:
            return
        self._pending = place
        self._is_left = place.get("left", False)
        self._attach = attach
        if place["ended"]:  # now, before the program's own work at the beginning of the next epoch
            self.source.load(place["source"], place["pass"], place["index"], True, attach)

    def __iter__(self) -> Iterator[Any]:
        """An iterator for the trainer: the rest of a resumed pass, then whole passes."""
        if self._has_placeholders:
            for _ in range(self._skipped):
                yield PLACEHOLDER
        self._skipped = 0
        token = self._token = object()
        if not self._is_begun():
            return
        while token is self._token:  # if not, a later iterator is in use
            try:
                batch = self._next()
            except StopIteration:
                return
            self._index += 1
            self._handed += 1
            self._in_epoch += 1
            yield tuple(batch) if isinstance(batch, list) else batch

    def caught_up(self) -> None:
        self._skipped = 0
        self._has_caught_up = True

    def trained(self, batches: int) -> int:
        batches = min(batches, self._handed - self._trained)
        self._trained += batches
        for count in [count for count in self._places if count < self._trained]:
            del self._places[count]
        return batches

    def place(self, *, between_epochs: bool = False) -> dict[str, Any]:
        position = self._place()
        # Keras 2 knows from earlier epochs how long one is, and does not read on to see that the pass is over.
        is_left = between_epochs and not self._goes_on and position["pass"] >= 0 and not position["ended"]
        return {**position, "left": True} if is_left else position

    def _place(self) -> dict[str, Any]:
        if self._pending is not None:
            return self._pending
        if self._trained == self._handed:
            return self._here_or_at_the_end()
        if self.source.tracked() is not None:
            raise UnsupportedError(
                "the trainer has read batches ahead, and this data cannot return to the last trained batch",
                key="data",
                found=f"{self._handed - self._trained} batches read ahead",
                remedy="give the data get_state() and set_state()",
            )
        return self._places[self._trained]

    @property
    def is_read(self) -> bool:
        return self._handed > 0

    @property
    def is_over(self) -> bool:
        """Whether all batches of the pass have been trained."""
        if self._skipped:
            return False
        if self._pending is not None:
            return bool(self._pending["ended"])
        return self._handed == self._trained and self._number >= 0 and self._is_over()

    def tracked(self) -> Any:
        # The state is in the stand-in until the resumed position is read from. An iterator of the source is an earlier one.
        return None if self._pending is not None else self.source.tracked()

    def stand_in(self) -> Any:
        return self.source.stand_in()

    def _nowhere(self) -> None:
        self._number = -1
        self._index = self._handed = self._trained = self._skipped = self._in_epoch = 0
        self._ended = False
        self._places = {}
        self._pending = None
        self._has_caught_up = self._is_left = False
        self._ahead = None
        self._token = object()

    def _is_unread(self) -> bool:
        """Whether a resumed epoch has ended without a further batch of its pass, so that the next epoch starts the next pass."""
        return self._has_caught_up and self._pending is not None and not self._goes_on

    @property
    def _goes_on(self) -> bool:
        """Whether a pass continues in the next epoch."""
        return self._steps is not None and self._steps != self.length and not self.source.is_stream

    def _is_begun(self) -> bool:
        """Goes to the start of a new iterator of the trainer. Returns whether it has batches in this epoch."""
        position, self._pending = self._pending, None
        if position is not None:
            self._number, self._index, self._ended = position["pass"], position["index"], position["ended"]
            if not self._ended:
                self.source.load(position["source"], self._number, self._index, False, self._attach)
                if "random" in position:
                    set_random_state(position["random"])
                left, self._is_left = self._is_left, False
                if not left:
                    return True
            elif self._in_epoch and not self._may_go_on():
                return False
        elif self._goes_on and self._number >= 0 and not self._is_over():
            return True
        self._begin_pass()
        return True

    def _begin_pass(self) -> None:
        if self._number >= 0 and self._is_over() and not self._ended:
            self.source.finish()
        self._ahead = None
        self._number += 1
        self._index = 0
        self._ended = False
        self.source.begin(self._number)

    def _next(self) -> Any:
        """The next batch of this pass, or of the next pass if the same iterator reads it.

        Raises:
            StopIteration: The iterator of the trainer has no more batches.
        """
        if self._ahead is not None:
            (batch, _), self._ahead = self._ahead, None
            return batch
        note = self._handed if self._handed > self._trained else None
        if note is not None:
            # The next batch draws from the present random state, and not from that at the time of the save.
            self._places[note] = {**self._here(), "random": random_state()}
        while True:
            if not self._is_over():
                try:
                    return self.source.next()
                except StopIteration:
                    self._end()
                    if note is not None:
                        self._places[note] = self._here()
            if self._index == 0 or not self._may_go_on():
                raise StopIteration
            self._begin_pass()

    def _is_over(self) -> bool:
        return self._ended or (self.length is not None and self._index >= self.length)

    def _may_go_on(self) -> bool:
        if not self._goes_on:
            return False
        assert self._steps is not None
        return self.length is None or self._one_iterator or self._in_epoch == 0 or self._in_epoch >= self._steps

    def _end(self) -> None:
        self._ended = True
        if self.length is not None or self._steps is not None or self.source.is_stream:
            return
        if self._usual is None:
            self._usual = self._index
        elif self._usual != self._index:
            warn(
                f"passes over this data differ in length ({self._usual} and {self._index} batches), but Keras expects one length: "
                "epochs of a resumed run may have other batches; pass steps_per_epoch to fit()"
            )

    def _here_or_at_the_end(self) -> dict[str, Any]:
        if self._ahead is not None:
            return self._ahead[1]
        here = self._here()
        if not self.source.looks_ahead or self.length is not None or self._number < 0 or self._ended:
            return here
        try:
            self._ahead = self.source.next(), here
        except StopIteration:
            self._end()
            return self._here()
        return here

    def _here(self) -> dict[str, Any]:
        if not self._ended and self._is_over() and self._number >= 0:
            self.source.finish()
            self._ended = True
        state = self.source.save_end() if self._ended else self.source.save()
        return {
            "kind": type(self.source).__name__,
            "pass": self._number,
            "index": self._index,
            "ended": self._ended,
            "usual": self._usual,
            "source": state,
        }
