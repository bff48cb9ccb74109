"""A plugin of pytest for the tests of Orbax, which are made for several processes: they run in one, on eight devices of the CPU."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import tempfile
import types
import unittest
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"


def pytest_configure(config: Any) -> None:
    """Makes the module that only checkouts of Orbax have: the base of its tests for several processes."""
    import jax

    class MultiProcessTest(unittest.TestCase):
        def multiprocess_create_tempdir(self, name: str | None = None) -> str:
            return tempfile.mkdtemp(prefix=name, dir=os.getcwd())

    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    jax.distributed.initialize(address, num_processes=1, process_id=0)
    importlib.import_module("absl.flags").FLAGS.mark_as_parsed()
    name = "orbax.checkpoint._src.testing.multiprocess_test"
    module: Any = types.ModuleType(name)
    module.MultiProcessTest = MultiProcessTest
    sys.modules[name] = module
    import orbax.checkpoint._src.testing

    orbax.checkpoint._src.testing.multiprocess_test = module
