"""Where bytes live. All file operations of milepost go through a `Storage`.

====================================  ==============================================================================
`Storage`                             what a storage must do, and what each call promises about a crash
`ReadableFile`, `WritableFile`        what its `open` and `create` return
`Buffer`                              what is written, and read into
`LocalStorage`, `LOCAL_STORAGE`       files of this machine; the one that is used where no other is given
`MemoryStorage`                       files in memory, for tests and for checkpoints that need not last
`anchored`                            a storage for which relative paths stay what they are
`byte_view`, `check_range`            the bytes of a buffer of any kind, and the bounds of a file, for a storage of your own
====================================  ==============================================================================

A program gives its own wherever a storage is taken, as in ``CheckpointOptions(storage=...)``. The page ``docs/extending.md`` shows
how one is made, and `milepost.testing.storage_suite` checks one.

Example:
    >>> import milepost
    >>> from milepost.storage import MemoryStorage
    >>> options = milepost.CheckpointOptions(storage=MemoryStorage())
    >>> path = milepost.Checkpoint(step=milepost.Variable(3)).write("run/ckpt", options)
    >>> options.storage.list("run")
    ['ckpt.data-00000-of-00001', 'ckpt.index']
"""

from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer, ReadableFile, Storage, WritableFile
from milepost.storage.local import LOCAL_STORAGE, LocalStorage, anchored
from milepost.storage.memory import MemoryStorage

__all__ = [
    "LOCAL_STORAGE",
    "Buffer",
    "LocalStorage",
    "MemoryStorage",
    "ReadableFile",
    "Storage",
    "WritableFile",
    "anchored",
    "byte_view",
    "check_range",
]
