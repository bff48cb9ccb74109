"""Opening a checkpoint and restoring it into live objects, whatever kind it is."""

from __future__ import annotations

import os

from milepost.bundle import BundleReader, open_bundle
from milepost.engine.collector import collection_paused
from milepost.engine.name_based import NameBasedRestoration
from milepost.engine.options import CheckpointOptions
from milepost.engine.restore import Restoration
from milepost.engine.status import CheckpointLoadStatus, LoadStatus, NameBasedStatus, View
from milepost.errors import MilepostError
from milepost.graph.keys import OBJECT_GRAPH
from milepost.graph.object_graph import ObjectGraph
from milepost.storage import LocalStorage, Storage


def storage_of(options: CheckpointOptions | None) -> Storage:
    """Where files live: what the options say, or this machine."""
    return options.storage if options is not None and options.storage is not None else LocalStorage()


def saved_model_variables(path: str, storage: Storage) -> str:
    """The prefix of the variables inside a SavedModel directory; any other path unchanged."""
    for name in ("saved_model.pb", "saved_model.pbtxt"):
        if storage.is_file(os.path.join(path, name)):
            return os.path.join(path, "variables", "variables")
    return path


@collection_paused()
def read_object_graph(reader: BundleReader) -> ObjectGraph | None:
    """The object graph of a checkpoint, or None if it is a name-based one.

    Raises:
        CorruptCheckpointError: The graph is damaged.
    """
    if OBJECT_GRAPH not in reader:
        return None
    try:
        return ObjectGraph.deserialize(reader.read(OBJECT_GRAPH).item())
    except MilepostError as error:
        raise error.with_context(key=OBJECT_GRAPH, file=reader.prefix) from None


def load_into(prefix: str, view: View, options: CheckpointOptions) -> LoadStatus:
    """Restores a checkpoint.

    Args:
        prefix: The checkpoint.
        view: Returns the live root and what is attached to it.
        options: How to restore.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: It is damaged; nothing was changed.
        MismatchError: It does not fit the live objects; nothing was changed.
    """
    reader = open_bundle(storage_of(options), prefix)
    graph = read_object_graph(reader)
    root, attached = view()
    if graph is None:
        by_name = NameBasedRestoration(reader)
        by_name.restore(root, attached)
        return NameBasedStatus(by_name, view)
    restoration = Restoration(reader, graph, options)
    restoration.restore(root, attached)
    return CheckpointLoadStatus(restoration, view)
