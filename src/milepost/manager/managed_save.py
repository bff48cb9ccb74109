"""One save of a manager: it lists its checkpoint, deletes old ones, and records how it has ended."""

from __future__ import annotations

from milepost.engine.options import CheckpointOptions
from milepost.errors import AfterCommitError, MilepostError
from milepost.manager.committed import call_hook
from milepost.manager.finite import tell_nonfinite
from milepost.manager.health import FailedSave
from milepost.manager.managed_series import ManagedSeries
from milepost.manager.publishing import follow, publish
from milepost.manager.tolerated import note_failed
from milepost.saving.examination import Examined
from milepost.saving.run_save import ListedSave
from milepost.series.metadata import Metadata, decode, marked


class ManagedSave(ListedSave):
    """One save of a manager.

    Args:
        series: The series of the manager.
        number: The number of the checkpoint.
        options: How to save, as `ManagedSeries.with_options` returns it.

    Attributes:
        failure: How it has failed, or that it hangs; otherwise None.
    """

    def __init__(self, series: ManagedSeries, number: int, options: CheckpointOptions) -> None:
        super().__init__(series.path_of(number), options, self._publish)
        self.listed_elsewhere = lambda: follow(series, self.prefix)
        self.check_alone = series.listing.check_alone
        self.failure: FailedSave | None = None
        self._series = series
        self._number = number
        if series.tolerate is not None:
            self.hangs_after = series.tolerate.hangs_after
            series.record.hangs = lambda: self.hanging() is not None
        self._nonfinite: tuple[str, ...] = ()
        self._infinite = series.infinite
        if series.finite is not None:
            self.counts = series.finite.counts

    def run(self) -> None:
        """Saves, and records how that has ended. An error that the manager tolerates is told and not raised."""
        try:
            super().run()
        except BaseException as error:
            if self.is_committed and not isinstance(error, AfterCommitError):  # a write callback has failed
                self._good()
            elif isinstance(error, MilepostError) and self.fail(error):
                return
            raise
        self._good()

    def fail(self, error: MilepostError) -> bool:
        """Records that the save has failed, or that it hangs. Returns whether the manager tolerates that."""
        self.failure, is_tolerated = note_failed(self._series, self._number, error, self.failure)
        return is_tolerated

    def marked(self, found: Examined) -> bytes | None:
        """The metadata, with the names of the values that are not finite."""
        if self._infinite is None:  # this is the first checkpoint of the run
            self._infinite = frozenset(found.infinite)
        self._nonfinite = (*found.nan, *(name for name in found.infinite if name not in self._infinite))
        return marked(self.metadata, self._nonfinite, self._infinite)

    def _good(self) -> None:
        self._series.record.good(self.prefix, self._number)
        hook = self._series.on_committed
        if hook is not None and self.leads:
            saved_with = Metadata() if self.metadata is None else decode(self.metadata)
            call_hook(hook, self.storage, self.prefix, self._number, saved_with)
        if self._nonfinite:
            tell_nonfinite(self._series, self.prefix, self._nonfinite)

    def _publish(self, _: object, prefix: str, durable: bool) -> None:
        self._series.infinite = self._infinite
        publish(self._series, prefix, durable, self.metadata)
