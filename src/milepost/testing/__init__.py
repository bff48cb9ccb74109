"""Kits to test with: a storage that fails and crashes, one with the rules of Windows, and what every storage must do.

`milepost.testing.storage_suite` needs pytest, and is imported by name.
"""

from milepost.testing.faulty_storage import Effect, FaultyStorage, Operation
from milepost.testing.windows_storage import WindowsStorage

__all__ = ["Effect", "FaultyStorage", "Operation", "WindowsStorage"]
