"""Who is told of the saves and restores of this process, while the objects are as they are saved or were restored.

The list is empty, except in programs that `milepost check-resume` or `milepost.testing.assert_resumes` has started. These record what the
program holds (`milepost.tools.resumes.recording`).
"""

from __future__ import annotations

from typing import Final, Protocol

from milepost.graph.contract.operation import Operation


class Watcher(Protocol):
    """Is told of saves and restores, in the thread that does them."""

    def reading(self, prefix: str, operation: Operation, rank: int | None) -> None:
        """A save has read the values of its objects. The rank is that of this process, or None if it saves alone."""

    def saved(self, prefix: str) -> None:
        """A checkpoint is committed."""

    def restored(self, prefix: str, operation: Operation | None, rank: int | None) -> None:
        """A checkpoint is restored. The operation is None if it was loaded without objects."""


watchers: Final[list[Watcher]] = []
"""All that are told."""
