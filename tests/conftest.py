"""What holds for all tests: quiet frameworks on the CPU, property tests without deadlines, a place to save."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

# Read by TensorFlow when it is imported, here and in child processes.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Read by JAX when it is imported. Many tests compile the same, in this process and in others.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

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


def pytest_configure(config: pytest.Config) -> None:
    """Gives what JAX compiles a place for the time of the run; the processes that run tests in parallel inherit it."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = directory = tempfile.mkdtemp(prefix="milepost-jax-")
        config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))


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
