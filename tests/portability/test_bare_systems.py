"""milepost in processes that lack what macOS and Windows lack: real files, and the tests that every storage must pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEMS = ["macos", "windows"]

NO_LOCKS = ["test_in_use", "test_reading_does_not_use_a_file", "test_a_file_is_created_only_once"]
"""Here "windows" is Linux without locks: on Windows itself, sharing tells whether a file is in use."""


def run_bare(system: str, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"BARE_SYSTEM": system, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_import_and_local_files(system: str, tmp_path: Path) -> None:
    """A training saves, prunes and is killed; the next process restores, late too, goes on, and replaces what is there."""
    directory = str(tmp_path / "run")
    killed = run_bare(system, "-m", "tests.portability.training", directory, "begin")
    assert killed.returncode == 9, killed.stderr
    resumed = run_bare(system, "-m", "tests.portability.training", directory, "resume")
    assert resumed.returncode == 0, resumed.stderr
    found = json.loads(resumed.stdout)
    assert found["restored"] == "ckpt-10"
    assert found["history"] == list(range(1, 11))
    assert found["late"]
    assert found["saved"] == ["ckpt-11", "ckpt-12", "ckpt-13", "ckpt-14"]
    assert found["latest"] == "ckpt-14"
    assert found["best"] == 2
    kept = [name for name in found["files"] if name.endswith(".index")]
    assert kept == ["best.index", "ckpt-12.index", "ckpt-13.index", "ckpt-14.index"]
    # Who cannot tell whether the killed process lives leaves its files to it.
    assert system == "windows" or [name for name in found["files"] if name.endswith(".tmp")] == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_suite_of_every_storage(system: str) -> None:
    """Files of this machine do what a storage must do, by other calls."""
    chosen = "TestLocalStorage"
    if system == "windows":
        chosen += " and not " + " and not ".join(NO_LOCKS)
    files = ["tests/storage/test_suites.py", "tests/storage/test_local.py", "tests/storage/test_paths.py"]
    arguments = ["-p", "tests.portability.bare_system", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"]
    # pytest imports the class of a warning that it is to ignore, and so all of milepost, too early.
    done = run_bare(system, "-m", "pytest", *arguments, "-o", "filterwarnings=", "-k", chosen, *files)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(done.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 150, done.stdout[-500:]


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_taken_away_is_gone(system: str) -> None:
    """These tests would say nothing in a process that has everything."""
    code = (
        "import tests.portability.bare_system, importlib.util, os, milepost\n"
        "names = ['preadv', 'pwritev', 'O_TMPFILE', 'pread', 'fork', 'register_at_fork', 'O_DIRECTORY']\n"
        "print([name for name in names if hasattr(os, name)], importlib.util.find_spec('fcntl') is not None)"
    )
    done = run_bare(system, "-c", code)
    expected = {
        "macos": "['pread', 'fork', 'register_at_fork', 'O_DIRECTORY'] True\n",
        "windows": "[] False\n",
    }
    assert done.stdout == expected[system], done.stderr
