"""Lists the tensors of an open checkpoint of any format."""

from __future__ import annotations

from milepost.bundle.interface import BundleReader
from milepost.bundle.reader import IndexedReader
from milepost.tensor import TensorSpec


def specs_of(reader: BundleReader) -> tuple[list[str], list[TensorSpec]]:
    """The keys of all tensors, sorted, and the element type and shape of each. Errors are those of `BundleReader.spec`.

    Args:
        reader: The open checkpoint.

    Example:
        >>> import numpy as np
        >>> from milepost.bundle import BundleWriter, open_bundle
        >>> from milepost.engine.commit import commit_bundle
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> commit_bundle(storage, "ckpt", lambda writer: writer.add("x", np.float32([1, 2])))
        >>> specs_of(open_bundle(storage, "ckpt"))
        (['x'], [float32[2]])
    """
    if isinstance(reader, IndexedReader):
        return reader.keys(), reader.specs()
    keys = sorted(reader.keys())
    return keys, [reader.spec(key) for key in keys]
