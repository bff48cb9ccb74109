"""Writes checkpoints of TensorFlow 1: tensors by name, without an object graph, as ``tf.compat.v1.train.Saver`` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from milepost.bundle import BundleReader, BundleWriter, index_path, open_bundle
from milepost.coding.utf8 import utf8
from milepost.conversion.divided import parts_of
from milepost.conversion.plan import Exported
from milepost.conversion.streamed import TensorSource
from milepost.conversion.writer import NOT_UTF8, Writer
from milepost.graph.keys import is_value
from milepost.series.commit import BundleCommit
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tensor import DType


def _accepts(dtype: DType) -> bool:
    return True


def _problem(tensor: Exported) -> str | None:
    if not is_value(tensor.name):
        return "this name means something else in a checkpoint"
    name = utf8(tensor.name)
    if name is None:
        return NOT_UTF8
    return "the name is empty, or begins with NUL" if not name or name[0] == 0 else None


def _paths(target: str, tensors: Sequence[Exported], most: int | None) -> list[str]:
    return [index_path(target)]


def write(
    target: str,
    tensors: Sequence[Exported],
    most: int | None,
    reader: BundleReader,
    *,
    texts: Mapping[str, bytes] = MappingProxyType({}),
    alignment: int = 1,
) -> list[str]:
    """Writes a checkpoint.

    Args:
        target: Its prefix.
        tensors: The tensors. Their names are keys.
        most: The most bytes of a data file, or None.
        reader: The open checkpoint to convert.
        texts: The object graph and the metadata, by key, if there are any.
        alignment: Bytes; each tensor begins at a multiple of it.

    Returns:
        The files.

    Raises:
        CorruptCheckpointError: Some bytes of the checkpoint are damaged.
        StorageError: The files cannot be written.
    """
    parts = parts_of(tensors, most)
    source = TensorSource(reader)
    with BundleCommit(DEFAULT_STORAGE, target, len(parts)) as commit:
        writer = BundleWriter(shards=len(commit.data), alignment=alignment)
        for shard, part in enumerate(parts):
            for tensor in part:
                writer.add(tensor.name, source.array(tensor), tensor.spec.dtype, shard=shard)
        for key, text in texts.items():
            writer.add(key, text)
        commit.write(writer)
    return checkpoint_files(target)


def checkpoint_files(prefix: str) -> list[str]:
    """The files of a checkpoint that was written: its index, and its data files."""
    with open_bundle(DEFAULT_STORAGE, prefix) as written:
        return [index_path(prefix), *written.shard_paths]


WRITER: Final = Writer("tensorflow1", _accepts, _paths, write, _problem, divides=True)
"""The format."""
