"""Which pass over the data ``train()`` is in, and how many batches of it are trained."""

from __future__ import annotations

from typing import Any


class Passes:
    """Counts passes and their batches by what ``get_batch_samples()`` returns.

    The number of the step tells neither: data without length has passes that the trainer does not know, and a callback can end an epoch early.

    Attributes:
        number: The pass, from 0.
        batches: How many batches of it are trained, or are about to be.
        length: The batches of a pass, as far as the trainer knows.
        has_begun: Whether the trainer has told, or was told, where to begin.
    """

    def __init__(self) -> None:
        self.number = self.batches = self.length = 0
        self.has_begun = False
        self._iterator: Any = None

    def begin_at(self, number: int, batches: int) -> tuple[int, int]:
        """Begins in the middle of a pass, or at its beginning. Returns both numbers."""
        self.number, self.batches, self.has_begun = number, batches, True
        return number, batches

    def read_from(self, iterator: Any) -> None:
        """Records that the next batches come from an iterator. Another one than before is the next pass."""
        if self._iterator is not None and iterator is not self._iterator:
            self.number, self.batches = self.number + 1, 0
        self._iterator = iterator

    def next(self, *, ended: bool) -> list[int]:
        """Where a run begins that is resumed here.

        Args:
            ended: Whether this pass is over.
        """
        return [self.number + 1, 0] if ended else [self.number, self.batches]
