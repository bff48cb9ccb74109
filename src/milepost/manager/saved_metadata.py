"""The metrics and metadata of the checkpoints of one manager, each read once."""

from __future__ import annotations

from milepost.bundle import open_whole
from milepost.engine.metadata import Metadata, decode, read_metadata
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError
from milepost.storage import Storage


class SavedMetadata:
    """Reads what was saved with checkpoints, and remembers it.

    Args:
        storage: Where they are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Metadata] = {}

    def of(self, prefix: str) -> Metadata:
        """What was saved with a checkpoint.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged.
        """
        found = self._known.get(prefix)
        if found is None:
            with open_whole(self._storage, prefix) as reader:
                found = self._known[prefix] = read_metadata(reader)
        return found

    def metrics_of(self, prefix: str) -> dict[str, object] | None:
        """The metrics of a checkpoint; None if there are none, or if they are damaged or missing."""
        try:
            return self.of(prefix).metrics
        except (CheckpointNotFoundError, CorruptCheckpointError):
            return None

    def remember(self, prefix: str, metadata: bytes | None) -> None:
        """Notes what was saved with a new checkpoint, as `milepost.engine.metadata.encode` gave it."""
        self._known[prefix] = Metadata() if metadata is None else decode(metadata)

    def forget(self, prefix: str | None = None) -> None:
        """Reads a checkpoint again when it is asked for next; by default all."""
        if prefix is None:
            self._known.clear()
        else:
            self._known.pop(prefix, None)
