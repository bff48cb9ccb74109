"""Runs a program that is killed again and again, until it comes to its end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_with_kills(module, directory, result, kills, seed):
    """Runs ``python -m module directory result``, and kills it once it has saved something new, ``kills`` times."""
    chance = random.Random(seed)
    for _ in range(kills):
        before = newest(directory)
        process = subprocess.Popen([sys.executable, "-m", module, str(directory), str(result)], cwd=ROOT, env=quiet())
        while process.poll() is None and newest(directory) == before:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if result.exists():
            return
    subprocess.run([sys.executable, "-m", module, str(directory), str(result)], cwd=ROOT, env=quiet(), check=True)


def quiet():
    return {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


def newest(directory):
    return max((each.name for each in Path(directory).glob("*.index")), key=lambda name: (len(name), name), default="")
