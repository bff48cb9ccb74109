"""Where bytes live. All file operations of milepost go through a `Storage`."""

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
]
