"""What not every system has, for tests that are about just that."""

import os

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system lists no open files in /proc")
needs_clear_refs = pytest.mark.skipif(
    not os.path.exists("/proc/self/clear_refs"), reason="this system does not tell the most memory that a process had"
)


def open_descriptors() -> list[str]:
    """The files that this process has open; the test is skipped where the system does not tell."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system lists no open files in /proc")
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if os.path.lexists(link)]
