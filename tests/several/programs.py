"""Programs that run in several real processes of this machine, which files, PyTorch or JAX connects."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]

FILES = """
from milepost.coordination import FileCoordinator
coordinator = FileCoordinator(os.environ["MESSAGES"], rank, size)
options = dict(coordinator=coordinator, process_timeout=float(os.environ["TIMEOUT"]))
"""
TORCH = """
import torch, torch.distributed
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{os.environ['PORT']}", rank=rank, world_size=size)
options = dict(process_timeout=float(os.environ["TIMEOUT"]))
"""
JAX = """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{os.environ['PORT']}", size, rank)
options = dict(process_timeout=float(os.environ["TIMEOUT"]))
"""
_HEAD = """
import json, os, sys
import numpy as np
rank, size, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
results = {{}}
{connect}
import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, MilepostError, Variable

def attempt(name, action):
    try:
        results[name] = action()
    except MilepostError as error:
        results[name] = f"{{type(error).__name__}}: {{error}}"
    return results[name]

"""
_TAIL = """
print("RESULTS " + json.dumps(results), flush=True)
{end}
"""


class Ended(NamedTuple):
    """How one process ended.

    Attributes:
        code: Its exit status; negative for a signal.
        results: What the program put into ``results``.
        error: What it wrote to its standard error.
        seconds: How long it ran.
    """

    code: int
    results: Any
    error: str
    seconds: float


class Programs:
    """The processes of one program, running.

    Args:
        body: The program. It finds ``rank``, ``size``, ``directory``, ``options`` (for `CheckpointOptions`), and ``attempt(name, action)``,
            which puts what the action returns, or the error it raises, into ``results``.
        size: How many processes.
        directory: A directory that they share.
        connect: What connects them: `FILES`, `TORCH` or `JAX`.
        timeout: The ``process_timeout``, in seconds.
        environment: More of the environment.
    """

    def __init__(
        self,
        body: str,
        size: int,
        directory: Path,
        connect: str = FILES,
        timeout: float = 60,
        environment: dict[str, str] | None = None,
    ) -> None:
        end = {TORCH: "torch.distributed.destroy_process_group()", JAX: "jax.distributed.shutdown()"}.get(connect, "")
        text = _HEAD.format(connect=connect) + textwrap.dedent(body) + _TAIL.format(end=end)
        Path(directory).mkdir(parents=True, exist_ok=True)
        self._begun = time.monotonic()
        messages = f"{directory}-messages-{time.time_ns()}"
        own = {"PORT": str(free_port()), "MESSAGES": messages, "TIMEOUT": str(timeout)}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", text, str(rank), str(size), str(directory)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=settings(**own, **(environment or {})),
                cwd=ROOT,
            )
            for rank in range(size)
        ]

    def signal(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Sends a signal to one of them."""
        self.processes[rank].send_signal(number)

    def end(self, deadline: float = 240) -> list[Ended]:
        """Waits until all have ended; kills those that are left after ``deadline`` seconds."""
        ended = []
        until = time.monotonic() + deadline
        try:
            for process in self.processes:
                out, error = process.communicate(timeout=max(until - time.monotonic(), 0.1))
                lines = [line for line in out.splitlines() if line.startswith("RESULTS ")]
                results = json.loads(lines[-1].removeprefix("RESULTS ")) if lines else None
                ended.append(Ended(process.returncode, results, error, time.monotonic() - self._begun))
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                    process.communicate()
        return ended


def run(body: str, size: int, directory: Path, connect: str = FILES, **settings: Any) -> list[Any]:
    """Runs a program in several processes, all of which must end well; returns the results of each."""
    ended = Programs(body, size, directory, connect, **settings).end()
    assert [each.code for each in ended] == [0] * size, [each.error[-2000:] for each in ended]
    return [each.results for each in ended]


def same(results: Sequence[Any]) -> Any:
    """What all processes have in common, which must be all."""
    assert all(each == results[0] for each in results), results
    return results[0]


def settings(**more: str) -> dict[str, str]:
    """The environment of a process: one thread, no graphics cards, and the packages of this folder."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        **more,
    }


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
