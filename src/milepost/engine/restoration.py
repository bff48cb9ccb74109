"""What restores of all kinds of checkpoints have in common: until when values are deferred, and who asks about them."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from milepost.bundle import BundleReader
from milepost.deferred.table import stop_waiting
from milepost.engine import unasked
from milepost.engine.identity import Reference, uids
from milepost.engine.report import Entry, Report
from milepost.errors import user_place


class WatchedRestore(abc.ABC):
    """One restore, for as long as anybody asks about it or something of it is deferred.

    Args:
        reader: The open checkpoint.

    Attributes:
        uid: Its number; later restores win.
        reader: The open checkpoint.
        partial_expected: Whether values that nothing ever took are no reason to warn.
        is_watched: Whether somebody may still ask what became of the values.
        may_lack: Whether there were live objects that nothing may have been saved for.
        is_asked: Whether anybody has asked what became of the values.
        place: The line that restored.
    """

    def __init__(self, reader: BundleReader) -> None:
        self.uid = next(uids)
        self.reader = reader
        self.partial_expected = False
        self.is_watched = True
        self.may_lack = False
        self.is_asked = False
        self.place = user_place()
        self._root: Reference | None = None
        unasked.register(self)

    @abc.abstractmethod
    def report(self, root: Any, attached: Sequence[tuple[str, Any]] = ()) -> Report:
        """An account of every saved value, and of every live value reachable from ``root`` now."""

    @abc.abstractmethod
    def missing(self, root: Any, attached: Sequence[tuple[str, Any]]) -> list[Entry]:
        """Live values that the checkpoint has nothing for."""

    @abc.abstractmethod
    def matched_nothing(self) -> bool:
        """Whether no live object but the root took anything."""

    @abc.abstractmethod
    def warn_of_unused(self) -> None:
        """Warns of values that nothing ever took, once."""

    def begins_at(self, root: Any) -> None:
        """Notes which object stands for the root of the checkpoint, weakly."""
        with suppress(TypeError):  # of one that allows no weak reference
            self._root = weakref.ref(root)

    def concerns(self, root: Any) -> bool:
        """Whether this object stands for the root of the checkpoint."""
        return self._root is not None and self._root() is root

    def stop_waiting(self) -> None:
        """Lets no object take anything any more; closes the files."""
        stop_waiting(self.uid)
        self.reader.release(for_good=True)

    def expect_partial(self) -> None:
        """Says that what no object takes is not wanted; closes files, which are opened again when an object comes."""
        self.partial_expected = True
        self.reader.release(for_good=False)

    def unwatch(self) -> None:
        """Says that nobody will ask any more what became of the values."""
        self.is_watched = False
