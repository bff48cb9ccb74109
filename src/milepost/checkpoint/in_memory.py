"""A checkpoint as a dict of arrays, for `Checkpoint.state_dict` and `Checkpoint.load_state_dict`.

The dict has every key of a checkpoint, that of the object graph included. A save and a restore go over files in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleWriter, data_path, index_path, open_bundle
from milepost.errors import UnsupportedError
from milepost.graph.keys import OBJECT_GRAPH
from milepost.storage import MemoryStorage
from milepost.tensor import DType

PREFIX: Final = "state"
"""The prefix of the checkpoint in memory."""


def arrays_in(storage: MemoryStorage) -> dict[str, Any]:
    """The values of the checkpoint in a storage, by key. Scalar strings are ``bytes``."""
    with open_bundle(storage, PREFIX) as reader:
        arrays = {key: reader.read(key) for key in reader.keys()}  # noqa: SIM118 - a reader is not a mapping
    return {key: array if array.ndim or array.dtype != object else array.item() for key, array in arrays.items()}


def storage_with(state_dict: Any) -> MemoryStorage:
    """A storage with a checkpoint that has these values.

    Args:
        state_dict: What `arrays_in` returned.

    Raises:
        UnsupportedError: The argument is anything else.
    """
    if not isinstance(state_dict, Mapping) or OBJECT_GRAPH not in state_dict:
        raise UnsupportedError(
            "this is not the state of a Checkpoint",
            expected="a dict that Checkpoint.state_dict() has returned",
            found=f"{state_dict!r:.80} of type {type(state_dict).__name__}",
            remedy="to restore a file of another library, pass its path to restore()",
        )
    storage, writer = MemoryStorage(), BundleWriter()
    for key, value in sorted(state_dict.items()):
        array = np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
        writer.add(key, array, DType.of(array))
    with storage.create(data_path(PREFIX, 0, 1)) as data, storage.create(index_path(PREFIX)) as index:
        writer.write_shard(0, data)
        index.write(0, [writer.index()])
    return storage
