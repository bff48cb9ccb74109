"""Writes checkpoints of milepost: the values of any file as a tree of dicts and lists, as `milepost.save` writes it."""

from __future__ import annotations

from typing import Any

from milepost.bundle import BundleReader
from milepost.checkpoint.load_tree import tree_of
from milepost.checkpoint.save_tree import save
from milepost.conversion.names import Naming
from milepost.conversion.streamed import Source, StreamedArray
from milepost.conversion.tensorflow_writer import checkpoint_files
from milepost.engine.options import CheckpointOptions
from milepost.engine.sharding import MaxShardSizePolicy
from milepost.graph.keys import VARIABLE_VALUE


def write(target: str, reader: BundleReader, names: Naming, most: int | None) -> list[str]:
    """Writes a checkpoint.

    Args:
        target: Its prefix.
        reader: The open checkpoint to convert.
        names: New names, and what to leave out.
        most: The most bytes of a data file, or None.

    Returns:
        The files.

    Raises:
        CorruptCheckpointError: Some bytes of the checkpoint are damaged.
        UnsupportedError: A value needs an object that only code in the file could make.
    """
    source = Source(reader)

    def make(key: str, name: str, read: Any) -> Any:
        is_plain = name != VARIABLE_VALUE or reader.spec(key).dtype.is_bytes
        return read() if is_plain else StreamedArray(source, key)

    def new_name(name: str, *, dotted: bool = False) -> str | None:
        return names(name)

    options = CheckpointOptions()
    if most is not None:
        options.experimental_sharding_callback = MaxShardSizePolicy(most)
    return checkpoint_files(save(target, tree_of(reader, new_name, make), options))
