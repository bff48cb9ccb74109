"""Kits to test with: storages that fail and crash or have the rules of Windows, and what every storage and every adapter must do.

`FaultyStorage` records each `Operation` with the steps that it took on the disk (`Link`, `Rename`, `Remove`, `Write`, `Sync`).
`Specimen` is what the adapters of a framework are tested with. `milepost.testing.storage_suite` and
`milepost.testing.adapter_suite` need pytest, and are imported by name.
"""

from milepost.testing.disk import Link, Remove, Rename, Step, Sync, Write
from milepost.testing.faulty_storage import Effect, FaultyStorage, Operation
from milepost.testing.specimen import Objects, Specimen, Values, differences
from milepost.testing.windows_storage import WindowsStorage

__all__ = [
    "Effect",
    "FaultyStorage",
    "Link",
    "Objects",
    "Operation",
    "Remove",
    "Rename",
    "Specimen",
    "Step",
    "Sync",
    "Values",
    "WindowsStorage",
    "Write",
    "differences",
]
