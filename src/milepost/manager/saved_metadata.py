"""The metrics and metadata of the checkpoints of one manager, each read once."""

from __future__ import annotations

from milepost.bundle import open_whole
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError
from milepost.series.damage import concerns_file
from milepost.series.metadata import Metadata, decode, read_metadata
from milepost.storage import Storage


class SavedMetadata:
    """Reads the metrics and metadata of checkpoints, and remembers them.

    Args:
        storage: Where the checkpoints are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Metadata] = {}

    def of(self, prefix: str) -> Metadata:
        """The metrics and metadata that were saved with a checkpoint.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: The checkpoint is damaged.
        """
        metadata = self._known.get(prefix)
        if metadata is None:
            with open_whole(self._storage, prefix) as reader:
                metadata = self._known[prefix] = read_metadata(reader)
        return metadata

    def metrics_of(self, prefix: str) -> dict[str, object] | None:
        """The metrics of a checkpoint; None if there are none, or if they are damaged or missing.

        Raises:
            StorageError: The checkpoint cannot be read, and the reason is not damage.
        """
        saved_with = self._undamaged(prefix)
        return None if saved_with is None else saved_with.metrics

    def nonfinite(self, prefix: str) -> tuple[str, ...] | None:
        """The names of values that are not finite in a checkpoint, as it is marked; None if the checkpoint is damaged or missing.

        Raises:
            StorageError: The checkpoint cannot be read, and the reason is not damage.
        """
        saved_with = self._undamaged(prefix)
        return None if saved_with is None else saved_with.nonfinite

    def _undamaged(self, prefix: str) -> Metadata | None:
        try:
            return self.of(prefix)
        except (CheckpointNotFoundError, CorruptCheckpointError, StorageError) as error:
            if not concerns_file(error):
                raise
            return None

    def remember(self, prefix: str, metadata: bytes | None) -> None:
        """Records the metadata of a new checkpoint, as `milepost.series.metadata.encode` returned it."""
        self._known[prefix] = Metadata() if metadata is None else decode(metadata)

    def forget(self, prefix: str | None = None) -> None:
        """Forgets the metadata of a checkpoint, or of all checkpoints. The next call of `of` reads it again."""
        if prefix is None:
            self._known.clear()
        else:
            self._known.pop(prefix, None)
