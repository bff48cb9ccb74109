"""Storages. All file operations of milepost go through a `Storage`.

====================================  ==============================================================================
`Storage`                             the methods of a storage, and what each promises about a crash
`LinkingStorage`                      one method more, which incremental saves use
`ConditionalStorage`                  one method more, which takes the place of renames in object stores
`ReadableFile`, `WritableFile`        the files that `open` and `create` return
`LocalStorage`                        files of this machine; the default
`MemoryStorage`                       files in memory, for tests and for temporary checkpoints
`ObjectStorage`                       objects of a bucket of an object store; URLs as paths need it only for options
`byte_view`, `check_range`            the bytes of a buffer of any kind, and the bounds of a file, for a storage of your own
====================================  ==============================================================================

A program passes a storage of its own as ``CheckpointOptions(storage=...)``. The page
``docs/extending.md`` shows how to write one, and `milepost.testing.storage_suite` has tests for it.

Example:
    >>> import milepost
    >>> from milepost.storage import MemoryStorage
    >>> options = milepost.CheckpointOptions(storage=MemoryStorage())
    >>> path = milepost.Checkpoint(step=milepost.Variable(3)).write("run/ckpt", options)
    >>> options.storage.list("run")
    ['ckpt.data-00000-of-00001', 'ckpt.index']
"""

from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import ConditionalStorage, LinkingStorage, ReadableFile, Storage, WritableFile
from milepost.storage.local import LocalStorage
from milepost.storage.memory import MemoryStorage
from milepost.storage.objects.storage import ObjectStorage

__all__ = [
    "ConditionalStorage",
    "LinkingStorage",
    "LocalStorage",
    "MemoryStorage",
    "ObjectStorage",
    "ReadableFile",
    "Storage",
    "WritableFile",
    "byte_view",
    "check_range",
]
