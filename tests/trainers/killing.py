"""Runs a program that is killed again and again, until it comes to its end."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from pathlib import Path

from tests import programs

PATIENCE = 120
"""Seconds after which a program that saves nothing counts as stuck."""


def run_with_kills(arguments, directory, result, kills, seed, imports):
    """Runs ``python *arguments``, and kills it at a moment after it has saved something new, ``kills`` times; then lets it end.

    Args:
        arguments: Of ``python``.
        directory: Where the program saves.
        result: A file that the program makes at its end.
        kills: How often.
        seed: Of the moments.
        imports: The modules that the program needs, which are imported once for all its processes.

    Returns:
        How many kills came before the program had ended.
    """
    chance = random.Random(seed)
    done = 0
    for _ in range(kills):
        before = newest(directory)
        with tempfile.TemporaryFile("w+") as output:
            process = programs.start(arguments, stdout=output, stderr=output, environment=quiet(), imports=imports)
            deadline = time.monotonic() + PATIENCE
            while newest(directory) == before and not result.exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(chance.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            killed = process.wait() == -signal.SIGKILL
            output.seek(0)
            assert newest(directory) != before or result.exists(), output.read()[-4000:]
        done += killed
    ended = programs.run(arguments, environment=quiet(), imports=imports)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return done


def quiet():
    return {**os.environ, "PYTHONWARNINGS": "ignore"}


def newest(directory):
    return max((each.name for each in Path(directory).glob("*.index")), key=lambda name: (len(name), name), default="")
