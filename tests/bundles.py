"""Writes the files of a checkpoint directly, without objects."""

from __future__ import annotations

from collections.abc import Callable

from milepost.bundle import BundleWriter
from milepost.series.commit import BundleCommit
from milepost.storage import Storage


def commit_bundle(storage: Storage, prefix: str, fill: Callable[[BundleWriter], None], *, shards: int = 1) -> None:
    """Writes a checkpoint.

    Args:
        storage: Where to write.
        prefix: Path of the files, without their endings.
        fill: Adds the tensors to the writer.
        shards: The number of data files.
    """
    with BundleCommit(storage, prefix, shards) as commit:
        writer = commit.writer()
        fill(writer)
        commit.write(writer)
