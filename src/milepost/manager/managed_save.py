"""One save of a manager: it lists its checkpoint, deletes old ones, and records how it has ended."""

from __future__ import annotations

from milepost.engine.options import CheckpointOptions
from milepost.errors import AfterCommitError, MilepostError
from milepost.manager.health import FailedSave
from milepost.manager.managed_series import ManagedSeries
from milepost.manager.publishing import follow, publish
from milepost.manager.tolerated import note_failed
from milepost.saving.run_save import ListedSave


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
        self.failure: FailedSave | None = None
        self._series = series
        self._number = number
        if series.tolerate is not None:
            self.hangs_after = series.tolerate.hangs_after
            series.record.hangs = lambda: self.hanging() is not None

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

    def _good(self) -> None:
        self._series.record.good(self.prefix, self._number)

    def _publish(self, _: object, prefix: str, durable: bool) -> None:
        publish(self._series, prefix, durable, self.metadata)
