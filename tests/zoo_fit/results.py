"""Results of the rows with every trainer, from a process for each backend, because Keras takes its backend on import."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.zoo_fit.trainers import TRAINERS, environment, installed

Results = dict[str, dict[str, dict[str, Any]]]
"""By trainer and name of the row."""


def run_all(*texts: str, everywhere: bool = False) -> Results:
    """Runs rows with every trainer that is installed, with two backends at a time, the slowest first.

    Args:
        texts: Runs the rows whose names contain one of them, by default all.
        everywhere: Whether each row is tried at all places that the table names.
    """
    backends: dict[str, list[str]] = {}
    for trainer in sorted(installed(), key=("tf_keras", "tensorflow", "jax", "torch").index):
        backends.setdefault(TRAINERS[trainer].backend, []).append(trainer)
    arguments = [*(["--everywhere"] if everywhere else [])], list(texts)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda backend: _run_backend(backend, backends[backend], *arguments), backends)
        return by_trainer("".join(runs))


def by_trainer(lines: str) -> Results:
    """Results from lines of JSON, of which later ones count."""
    results: Results = {}
    for line in lines.splitlines():
        result = json.loads(line)
        results.setdefault(result["trainer"], {})[result["row"]] = result
    return results


def _run_backend(backend: str, trainers: list[str], options: list[str], texts: list[str]) -> str:
    """Runs rows with the trainers of one backend.

    Raises:
        RuntimeError: The process failed as a whole.
    """
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run(
            [sys.executable, "-m", "tests.zoo_fit.child", *options, ",".join(trainers), *texts],
            env=environment(backend, cache),
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode:
        raise RuntimeError(f"the runs with {', '.join(trainers)} failed:\n{run.stderr[-4000:]}")
    return run.stdout
