"""Which libraries' tests can be run: each has a module, whose `SUITE` describes them, and which is a plugin of pytest.

Its `pytest_configure` puts milepost in the place of the library. A module is imported only in the process that runs its tests.
"""

from __future__ import annotations

MODULES = {
    "safetensors": "tests.peers.safetensors",
    "flax": "tests.peers.flax",
    "accelerate": "tests.peers.accelerate",
    "keras-read": "tests.peers.keras_read",
    "keras-write": "tests.peers.keras_write",
    "orbax-manager": "tests.peers.orbax_manager",
    "orbax-handler": "tests.peers.orbax_handler",
}
