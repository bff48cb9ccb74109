"""Writes checkpoints of milepost.

The source's own object graph is written again, so lists, slot variables and plain state are what they were. The values of a file without one
become a tree of dicts and lists, as `milepost.save` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, MutableSequence
from typing import Any

from milepost.bundle import BundleReader
from milepost.bundle.memory import Array
from milepost.checkpoint.load_tree import tree_of
from milepost.checkpoint.save_tree import is_one_part, save
from milepost.conversion import tensorflow_writer
from milepost.conversion.names import Naming, renamed_graph
from milepost.conversion.plan import Exported
from milepost.conversion.streamed import StreamedArray, TensorSource
from milepost.conversion.tensorflow_writer import checkpoint_files
from milepost.engine.left_out import LeftOut
from milepost.engine.options import CheckpointOptions
from milepost.engine.sharding import MaxShardSizePolicy
from milepost.graph.keys import ATTRIBUTES, METADATA, OBJECT_GRAPH, VARIABLE_VALUE, is_value
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.saved.rekeyed import rekeyed
from milepost.graph.trees.structure import is_tuple, make_tuple
from milepost.plain_state.kinds import OfKind
from milepost.restoring.load import read_object_graph


def write(target: str, reader: BundleReader, names: Naming, most: int | None, left_out: LeftOut) -> list[str]:
    """Writes a checkpoint. Objects that are not read are left out.

    Args:
        target: Its prefix.
        reader: The open checkpoint to convert.
        names: New names, and what to leave out.
        most: The most bytes of a data file, or None.
        left_out: What the save has left out on purpose, with the new names.

    Returns:
        The files.

    Raises:
        CorruptCheckpointError: Some bytes of the checkpoint are damaged.
        UnsupportedError: Two values would have the same name.
    """
    graph = read_object_graph(reader)
    if graph is None:
        return _write_tree(target, reader, names, most)
    kept, _ = renamed_graph(graph, names)
    metadata = left_out.beside(reader.read(METADATA).item()) if METADATA in reader else None
    return _write_graph(target, reader, kept, most, metadata)


def _write_graph(
    target: str, reader: BundleReader, graph: ObjectGraph, most: int | None, metadata: bytes | None
) -> list[str]:
    """Writes the objects of a checkpoint."""
    kept, moved = rekeyed(graph)
    tensors = []
    for key in sorted(set(reader.keys()) - {OBJECT_GRAPH, METADATA}):
        path, marker, local = key.partition(ATTRIBUTES)
        if path in moved or not is_value(key):
            spec = reader.spec(key)
            tensors.append(Exported(f"{moved.get(path, path)}{marker}{local}", key, spec, spec))
    alignment = CheckpointOptions().data_alignment
    texts = {OBJECT_GRAPH: kept.serialize()} | ({} if metadata is None else {METADATA: metadata})
    return tensorflow_writer.write(target, tensors, most, reader, texts=texts, alignment=alignment)


def _write_tree(target: str, reader: BundleReader, names: Naming, most: int | None) -> list[str]:
    """Writes values by names."""
    source = TensorSource(reader)
    unread = reader.catalogue().unread

    def make(key: str, name: str, hints: Mapping[str, Array], read: Callable[[], Any]) -> Any:
        is_plain = name != VARIABLE_VALUE or reader.spec(key).dtype.is_bytes
        return read() if is_plain else StreamedArray(source, key, hints)

    options = CheckpointOptions()
    if most is not None:
        options.experimental_sharding_callback = MaxShardSizePolicy(most)
    tree = tree_of(reader, _Read(names, unread), make, made=False)
    return checkpoint_files(save(target, _with_arrays(tree, reader.origin.tensors), options))


class _Read:
    """New names that leave out what is not read."""

    def __init__(self, names: Naming, unread: Collection[str]) -> None:
        self._names = names
        self._unread = unread
        self.takes, self.ignores = names.takes, names.ignores
        self.knows_others = names.knows_others

    def __call__(self, name: str, *, dotted: bool = False) -> str | None:
        return None if name in self._unread else self._names(name)


def _with_arrays(value: Any, kind: str, *, inside: bool = False) -> Any:
    """The tree with arrays in the parts that are saved as one, such as the state of an optimizer of PyTorch by the numbers of parameters.
    Dicts and lists are changed.

    Args:
        value: The tree.
        kind: The registered kind of the file's tensors in plain state; empty for arrays.
        inside: Whether it is in such a part.
    """
    if isinstance(value, StreamedArray):
        if not inside:
            return value
        return OfKind(kind, value.read()) if kind else value.read()
    inside = inside or is_one_part(value)
    if isinstance(value, MutableMapping):
        for name, each in value.items():
            value[name] = _with_arrays(each, kind, inside=inside)
    elif isinstance(value, MutableSequence) and not isinstance(value, bytearray):
        for index, each in enumerate(value):
            value[index] = _with_arrays(each, kind, inside=inside)
    elif is_tuple(type(value)):
        return make_tuple(type(value), [_with_arrays(each, kind, inside=inside) for each in value])
    return value
