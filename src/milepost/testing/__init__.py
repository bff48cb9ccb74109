"""Test kits for storages, adapters and coordinators.

`FaultyStorage` is a storage that fails and crashes as a test requires. It records each `Operation` with its steps on the disk
(`Link`, `Rename`, `Remove`, `Write`, `Sync`). `WindowsStorage` is a storage with the rules of Windows. A `Specimen` describes the
objects with which the adapters of a framework are tested. Import `milepost.testing.storage_suite`,
`milepost.testing.adapter_suite` and `milepost.testing.coordinator_suite` by name; they need pytest.
"""

import sys

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

_SUITES = (
    "milepost.testing.adapter_suite",
    "milepost.testing.coordinator_suite",
    "milepost.testing.storage_suite",
)

if "pytest" in sys.modules:
    # So that a test of a suite that fails says which values differ, as one in a test file does.
    import pytest

    pytest.register_assert_rewrite(*(name for name in _SUITES if name not in sys.modules))
