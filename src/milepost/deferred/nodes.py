"""Counts the deferred nodes of a restore, so that its files are closed when no node needs them."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.bundle import BundleReader


class DeferredNodes:
    """The deferred nodes of a restore.

    Args:
        reader: The checkpoint, whose files are closed when the last node is gone that needs them.
    """

    def __init__(self, reader: BundleReader) -> None:
        self._reader = reader
        self._counts: dict[int, int] = {}
        self._superseded = 0
        self._needing = 0

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._counts))

    @property
    def any_superseded(self) -> bool:
        """Whether a newer restore gives the values of some of them."""
        return self._superseded > 0

    def add(self, node: int) -> None:
        """Counts a new position; one node may be deferred in several places."""
        self._counts[node] = self._counts.get(node, 0) + 1
        self._needing += 1

    def remove(self, node: int, *, superseded: bool) -> None:
        """Counts a position that is gone."""
        count = self._counts.pop(node) - 1
        if count:
            self._counts[node] = count
        if superseded:
            self._superseded -= 1
            return
        self._needing -= 1
        self.release_if_unneeded()

    def supersede(self) -> None:
        """Counts a position that gives nothing any more."""
        self._superseded += 1
        self._needing -= 1
        self.release_if_unneeded()

    def release_if_unneeded(self) -> None:
        """Closes the files if nothing needs them."""
        if not self._needing:
            self._reader.release(for_good=True)
