"""The common part of restores of all kinds: how long values are deferred, and which warnings are issued."""

from __future__ import annotations

import abc
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from milepost.bundle import BundleReader, CastingReader
from milepost.deferred.table import stop_waiting
from milepost.engine import unasked
from milepost.engine.report import Entry, Outcome, Report
from milepost.engine.translation import Translation
from milepost.engine.unused_names import Unmet
from milepost.errors import user_place
from milepost.graph.contract.operation import Operation
from milepost.restoring.identity import Reference, uids


class WatchedRestore(abc.ABC):
    """One restore. It lives as long as its status, or as long as one of its values is deferred.

    Args:
        reader: The open checkpoint.
        translation: Whether numbers are converted.

    Attributes:
        uid: Its number. Later restores win.
        reader: The open checkpoint. If numbers are converted, it converts them.
        partial_expected: Whether `expect_partial` was called, so that there is no warning of values that no object took.
        is_watched: Whether the status still exists.
        may_lack: Whether there may be live objects for which nothing was saved.
        is_asked: Whether the program has asked the status for a report or an assertion.
        place: The line of the program that restored.
        unmet: Why it leaves out what the program asked for.
    """

    def __init__(self, reader: BundleReader, translation: Translation) -> None:
        self.uid = next(uids)
        self.reader: BundleReader = CastingReader(reader) if translation.cast else reader
        self.partial_expected = False
        self.is_watched = True
        self.may_lack = False
        self.is_asked = False
        self.place = user_place()
        self.unmet: Sequence[Unmet] = translation.unused.unmet
        self._root: Reference | None = None
        unasked.restores.add(self)

    @abc.abstractmethod
    def report(self, operation: Operation) -> Report:
        """A report of every saved value, and of every live value reachable from the root of the operation now."""

    @abc.abstractmethod
    def missing(self, operation: Operation) -> list[Entry]:
        """Live values that are not in the checkpoint."""

    @abc.abstractmethod
    def matched_nothing(self) -> bool:
        """Whether no live object except the root was matched."""

    @abc.abstractmethod
    def outcomes(self) -> Counter[Outcome]:
        """How many saved values have which outcome now, as far as that is known without a look at the live objects."""

    @abc.abstractmethod
    def warn_of_unused(self) -> None:
        """Warns once of saved values that no object took."""

    def saved_spec(self, key: str) -> str:
        """Element type and shape of a saved value, as reports show them; empty if the checkpoint does not have it."""
        return str(self.reader.spec(key)) if key in self.reader else ""

    def matched(self, key: str) -> Entry:
        """The entry of a report for a value that was assigned."""
        spec = self.saved_spec(key)
        if not isinstance(self.reader, CastingReader) or key not in self.reader.loss:
            return Entry(Outcome.MATCHED, key, spec, spec)
        loss = self.reader.loss[key]
        note = f"converted; the largest relative error is {loss:.1e}" if loss else "converted without a loss"
        return Entry(Outcome.MATCHED, key, str(self.reader.saved(key)), spec, note)

    def begins_at(self, root: Any) -> None:
        """Records which object matches the root of the checkpoint. The reference is weak."""
        with suppress(TypeError):  # an object that allows no weak reference
            self._root = weakref.ref(root)

    def concerns(self, root: Any) -> bool:
        """Whether this object matches the root of the checkpoint."""
        return self._root is not None and self._root() is root

    def stop_waiting(self) -> None:
        """Ends the restore: no object gets a value any more. Closes the files."""
        stop_waiting(self.uid)
        self.reader.release(for_good=True)

    def expect_partial(self) -> None:
        """Ends warnings of values that no object takes. Closes the files, which are opened again for objects that come later."""
        self.partial_expected = True
        self.reader.release(for_good=False)

    def unwatch(self) -> None:
        """Records that the status no longer exists."""
        self.is_watched = False
