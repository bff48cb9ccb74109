"""Programs that run in several real processes of this machine, which files, PyTorch or JAX connects.

Each is forked from a process that has imported what connects them (`tests.programs`). Neighbours have other hashes of strings, as
processes of their own would have: none may rely on the order of a set.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests import programs

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
_IMPORTS = {
    FILES: ["numpy"],
    TORCH: [
        *("torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp"),
        *("torch.distributed.tensor", "torch.distributed.tensor.debug", "torch.distributed.tensor.parallel"),
    ],
    JAX: ["jax", "jax.experimental.multihost_utils", "optax", "flax.nnx"],
}
"""What programs import that are connected by it: those that do not need all of it share the process with others."""
_LATE = ("PORT", "MESSAGES", "TIMEOUT", "XLA_FLAGS")
"""Variables that no import looks at."""
_launches = itertools.count()

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
        output: What it wrote to its standard output.
        error: What it wrote to its standard error.
        seconds: How long it ran.
    """

    code: int | None
    output: str
    error: str
    seconds: float

    @property
    def results(self) -> Any:
        """What a program of `Programs` put into ``results``; None if it did not come to its end."""
        lines = [line for line in self.output.splitlines() if line.startswith("RESULTS ")]
        return json.loads(lines[-1].removeprefix("RESULTS ")) if lines else None


class Processes:
    """Processes that run.

    Args:
        arguments: What follows ``python`` in the command of each.
        connect: What connects them: `FILES`, `TORCH` or `JAX`.
        environment: Their environment.
        directory: Their working directory.
        forked: Whether they come from a process that has imported what they need. Those that measure their own memory start afresh.
    """

    def __init__(
        self,
        arguments: Sequence[Sequence[str]],
        connect: str,
        environment: dict[str, str],
        directory: Path = ROOT,
        forked: bool = True,
    ) -> None:
        self._begun = time.monotonic()
        self._written = [(tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")) for _ in arguments]  # noqa: SIM115
        launch = next(_launches)
        self.processes: list[programs.Program | subprocess.Popen[str]] = []
        for rank, (each, (stdout, stderr)) in enumerate(zip(arguments, self._written, strict=True)):
            own = {**environment, "PYTHONHASHSEED": str(1 + (rank + launch) % 2)}
            if forked:
                early = {name: value for name, value in own.items() if name not in _LATE}
                late = {name: own[name] for name in _LATE if name in own}
                process = programs.start(
                    each,
                    imports=imports(connect, own),
                    environment=early,
                    late=late,
                    directory=directory,
                    stdout=stdout,
                    stderr=stderr,
                )
            else:
                command = [sys.executable, *each]
                process = subprocess.Popen(command, env=own, cwd=directory, text=True, stdout=stdout, stderr=stderr)
            self.processes.append(process)

    def signal(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Sends a signal to one of them."""
        self.processes[rank].send_signal(number)

    def end(self, deadline: float = 600) -> list[Ended]:
        """Waits until all have ended; kills those that are left after ``deadline`` seconds."""
        ended = []
        until = time.monotonic() + deadline
        try:
            for process, written in zip(self.processes, self._written, strict=True):
                process.wait(timeout=max(until - time.monotonic(), 0.1))
                output, error = map(_read, written)
                ended.append(Ended(process.returncode, output, error, time.monotonic() - self._begun))
        finally:
            for process in self.processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                    process.wait()
        return ended


class Programs(Processes):
    """The processes of one program, running.

    Args:
        body: The program. It finds ``rank``, ``size``, ``directory``, ``options`` (for `CheckpointOptions`), and ``attempt(name, action)``,
            which puts what the action returns, or the error it raises, into ``results``.
        size: How many processes.
        directory: A directory that they share.
        connect: What connects them: `FILES`, `TORCH` or `JAX`.
        timeout: The ``process_timeout``, in seconds.
        environment: More of the environment.
        forked: As of `Processes`.
    """

    def __init__(
        self,
        body: str,
        size: int,
        directory: Path,
        connect: str = FILES,
        timeout: float = 60,
        environment: dict[str, str] | None = None,
        forked: bool = True,
    ) -> None:
        end = {TORCH: "torch.distributed.destroy_process_group()", JAX: "jax.distributed.shutdown()"}.get(connect, "")
        text = _HEAD.format(connect=connect) + textwrap.dedent(body) + _TAIL.format(end=end)
        Path(directory).mkdir(parents=True, exist_ok=True)
        messages = f"{directory}-messages-{time.time_ns()}"
        own = {"PORT": str(free_port()), "MESSAGES": messages, "TIMEOUT": str(timeout)}
        arguments = [["-c", text, str(rank), str(size), str(directory)] for rank in range(size)]
        super().__init__(arguments, connect, {**settings(**own), **(environment or {})}, forked=forked)


def imports(connect: str, environment: Mapping[str, str]) -> list[str]:
    """What a process imports before it becomes programs that are connected so, of what is installed."""
    wanted = [*_IMPORTS[connect], *(["keras"] if "KERAS_BACKEND" in environment else [])]
    return [name for name in wanted if importlib.util.find_spec(name.partition(".")[0]) is not None]


def _read(file: IO[str]) -> str:
    """All that was written to a file, which is then closed."""
    with file:
        file.seek(0)
        return file.read()


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
    """A port of this machine that nobody uses now.

    It is below those that systems give to whoever asks for any: one of these could be given away before a program uses it.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as free, contextlib.suppress(OSError):  # somebody uses it
            free.bind(("127.0.0.1", port))
            return port
