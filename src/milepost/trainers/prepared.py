"""The position of a loader that Accelerate has prepared.

Its iterators are generators. They begin their pass when the first batch is requested, and read one batch ahead. A loop may make one and
drop it unread: `zip()` does so where the loader before it has no batch left.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from milepost.adapters.random_state import global_state
from milepost.trainers.loaders import LoaderPosition


class PreparedPosition:
    """Records and restores the position of a prepared loader.

    Args:
        loader: What ``accelerator.prepare()`` has returned.

    Raises:
        UnsupportedError: The data holds an iterator, so it cannot be read twice.
    """

    def __init__(self, loader: Any) -> None:
        # Accelerate's private names need Accelerate, which a program with plain loaders need not have.
        from milepost.adapters.accelerate.private import is_being_read, report_passes

        self._loader = loader
        self._position = LoaderPosition(loader)
        self._is_being_read = is_being_read
        self._is_last = False
        self._returning: weakref.ref[Iterator[Any]] | None = None
        report_passes(loader, self._begun)

    def state(self) -> dict[str, Any]:
        """The position, as plain data."""
        position = self._position
        if self._returning is not None and self._returning() is None:
            self._leave()
        if position.is_loaded:  # nothing was read since
            return self._state(position.state(), self._is_last)
        is_within = self._is_being_read(self._loader) and position.is_being_read
        is_last = is_within and position.has_ended
        return self._state(position.state(int(is_within and not is_last), ended=not is_within), is_last)

    def _state(self, position: dict[str, Any], is_last: bool) -> dict[str, Any]:
        return {"position": position, "iteration": self._loader.iteration + is_last, "last": is_last}

    def load(self, state: dict[str, Any]) -> None:
        """Goes to a position that `state` returned."""
        self._returning = None
        self._position.load(state["position"], global_state())
        self._position.arrived()  # the program restores the random state itself
        self._is_last = bool(state.get("last", False))
        self._loader.iteration = state["iteration"] - self._is_last

    def _begun(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """Returns the iterator of a pass that the loop begins, or continues after a restore."""
        if self._returning is not None:
            self._leave()
        if self._position.is_loaded:
            iterator = self._rest(iterator)
            self._returning = weakref.ref(iterator)
        return iterator

    def _rest(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """What is left of the pass. Accelerate itself does not count a pass that gives no batch."""
        if not self._is_last:
            yield from iterator
            return
        self._position.leave()
        self._loader.iteration += 1

    def _leave(self) -> None:
        """Ends the pass where it was saved, if no batch of the iterator that returned there was requested."""
        self._returning = None
        self._position.leave()
