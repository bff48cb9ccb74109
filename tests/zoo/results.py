"""Results of every case on every backend, each from a process of its own, because Keras takes its backend on import."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BACKENDS = ("tensorflow", "jax", "torch")
_QUICKLY = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""Compiling takes most of the time: JAX compiles the same again for each object, unless it has a cache on disk."""
Results = dict[str, dict[str, dict[str, Any]]]
"""By backend and name of the case."""


def installed() -> list[str]:
    """The backends that can be run here."""
    return [backend for backend in BACKENDS if importlib.util.find_spec(backend) is not None]


def run_all() -> Results:
    """Runs everything on every installed backend, two at a time, the slowest first."""
    backends = sorted(installed(), key=("jax", "tensorflow", "torch").index)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(backends, pool.map(run_backend, backends), strict=True))


def run_backend(backend: str) -> dict[str, dict[str, Any]]:
    """Runs everything on one backend.

    Raises:
        RuntimeError: The process failed as a whole.
    """
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run(
            [sys.executable, "-m", "tests.zoo.child"],
            env={**os.environ, **_QUICKLY, "KERAS_BACKEND": backend, "JAX_COMPILATION_CACHE_DIR": cache},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode:
        raise RuntimeError(f"the zoo on {backend} failed:\n{run.stderr[-4000:]}")
    found: dict[str, dict[str, Any]] = json.loads(run.stdout)
    return found
