"""What holds for all tests: quiet frameworks on the CPU, property tests without deadlines, a place to save."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from milepost import ending
from tests import stores

# Read by TensorFlow when it is imported, here and in child processes.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Read by JAX when it is imported. Many tests compile the same, in this process and in others.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiles in less time

# A shared machine makes any single example slow now and then. CI must not fail by luck; elsewhere luck finds more.
hypothesis.settings.register_profile(
    "milepost",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=10 if os.environ.get("MILEPOST_TESTS") == "quick" else 100,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("milepost")


_MEMORY = "/dev/shm"
"""The file system of Linux that is held in memory."""
_MEMORY_NEEDED = 4 << 30
"""The bytes that have to be free there. A machine with less than 8 GB has not as many, and most containers have not."""

_SCRATCH = "milepost-tests-"
"""How the names of directories begin that runs of the tests write to; the number of their process follows."""


def _memory() -> str | None:
    """Where files are held in memory, if there is enough of it."""
    if not (hasattr(os, "statvfs") and os.access(_MEMORY, os.W_OK)):
        return None
    free = os.statvfs(_MEMORY)
    return _MEMORY if free.f_bavail * free.f_frsize >= _MEMORY_NEEDED else None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Says where tests and their programs write; the processes that run tests in parallel inherit it.

    They write to memory where there is enough: a save waits for the disk some ten times, and there are thousands of saves.
    `tests/storage` is on the disk nevertheless.
    """
    if hasattr(config, "workerinput"):
        return
    memory = _memory()
    if memory is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)  # where tmp_path is
        for left in Path(memory).glob(f"{_SCRATCH}*"):  # by a run that was killed
            if not Path("/proc", left.name.split("-")[2]).exists():
                shutil.rmtree(left, ignore_errors=True)
    os.environ["MILEPOST_TESTS_DISK"] = tempfile.gettempdir()
    scratch = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=memory)
    config.add_cleanup(lambda: shutil.rmtree(scratch, ignore_errors=True))
    os.environ["TMPDIR"] = scratch
    tempfile.tempdir = None  # it is remembered otherwise
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(scratch, "jax"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Frees what earlier tests have left, where warnings are errors: a restore warns of unused values when it is freed."""
    if any(str(mark.args[0]).startswith("error") for mark in item.iter_markers("filterwarnings")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()


def pytest_sessionfinish() -> None:
    """Tests leave failed saves behind on purpose, which must not change the exit status of their run."""
    ending._failures.clear()


# Each has results that take minutes and that many tests look at.
LONGEST = ("tests/zoo/", "tests/zoo_fit/", "tests/callbacks/test_resume.py", "tests/interop/test_keras_resume.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with what takes longest, so that no process is left alone with it in the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_report_header(config: pytest.Config) -> str:
    versions = []
    for package in ("tensorflow", "keras", "tf_keras", "torch", "jax", "numpy", "protobuf", "awscrt"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    return "with: " + ", ".join(versions)


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Where a test may save."""
    return str(tmp_path / "ckpt")


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stores.Server]:
    """A server of S3 on this machine. A test that needs it is skipped where it is not installed."""
    yield from stores.seaweed(tmp_path_factory.mktemp("seaweed"))
