"""Results of the rows with every trainer, each from a process of its own, because Keras takes its backend on import."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.zoo_fit.trainers import environment, installed

Results = dict[str, dict[str, dict[str, Any]]]
"""By trainer and name of the row."""


def run_all(*texts: str) -> Results:
    """Runs rows with every trainer that is installed, two at a time, the slowest first.

    Args:
        texts: Runs the rows whose names have one of them, by default all.
    """
    trainers = sorted(installed(), key=("tf_keras", "tensorflow", "jax", "torch").index)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return by_trainer("".join(pool.map(lambda trainer: _run_trainer(trainer, *texts), trainers)))


def by_trainer(lines: str) -> Results:
    """Results from lines of JSON, of which later ones count."""
    results: Results = {}
    for line in lines.splitlines():
        result = json.loads(line)
        results.setdefault(result["trainer"], {})[result["row"]] = result
    return results


def _run_trainer(trainer: str, *texts: str) -> str:
    """Runs rows with one trainer.

    Raises:
        RuntimeError: The process failed as a whole.
    """
    with tempfile.TemporaryDirectory() as cache:
        run = subprocess.run(
            [sys.executable, "-m", "tests.zoo_fit.child", trainer, *texts],
            env=environment(trainer, cache),
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode:
        raise RuntimeError(f"the runs with {trainer} failed:\n{run.stderr[-4000:]}")
    return run.stdout
