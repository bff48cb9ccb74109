"""Test kits for programs, storages, adapters and coordinators.

`assert_resumes` proves that a training which was killed goes on exactly. `FaultyStorage` is a storage that fails and crashes
as a test requires. It records each operation with its steps on the disk. `WindowsStorage` is a storage with the rules of Windows. A `Specimen` describes the
objects with which the adapters of a framework are tested. Import `milepost.testing.storage_suite`,
`milepost.testing.adapter_suite` and `milepost.testing.coordinator_suite` by name; they need pytest.
"""

import sys

from milepost.testing.faulty_storage import FaultyStorage
from milepost.testing.resumes import assert_resumes
from milepost.testing.specimen import Specimen
from milepost.testing.windows_storage import WindowsStorage

__all__ = [
    "FaultyStorage",
    "Specimen",
    "WindowsStorage",
    "assert_resumes",
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
