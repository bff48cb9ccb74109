"""Programs in processes of their own, without the time that each would take to import a framework.

TensorFlow, Keras and PyTorch take five to ten seconds to import, and some hundred tests run programs that need them: trainings
that are killed and resumed, or Keras on a backend that is not the tests' own. A process that has imported what is needed, and
has used nothing of it, forks a child for each program (`tests.forking`). The child is a process as any other: it has its own
standard streams, arguments, working directory and ``__main__``, it can be killed, and how it ends is told. One such process
stands by for each environment and list of imports, so what a framework reads from the environment when it is imported is as
the program's own environment says.

Programs from the same process have the same hashes of strings, and so the same order in sets. A test of programs that go on
from what others saved gives another ``hash_seed`` to those that go on.

Use `subprocess` for a program that needs no framework or is the only one with its environment, and for tests about imports,
memory, or the start of the interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.forking import STATUS, Request

ROOT = Path(__file__).parents[1]
CAN_FORK = hasattr(os, "pidfd_open")
"""Elsewhere than on Linux, programs are started as usual: some systems' libraries do not work in forked processes."""
_MOST_FORKERS = 6
"""How many stand by at a time; each may hold half a gigabyte, much of which are files that all of them have mapped."""


_LATE = {"torch": ["torch._dynamo"]}
"""What frameworks import when it is first needed, and takes long."""


_BESIDE = {"torch": ["torchdata.stateful_dataloader"], "jax": ["flax.nnx", "optax"]}
"""What some programs of these frameworks need, and all get where it is installed: so they share one process."""


_TOGETHER = ("tensorflow", "keras", "tf_keras")
"""Each imports others of these. Programs that need any get all that are installed, and so share one process."""


def imports(*frameworks: str) -> list[str]:
    """The frameworks, and what takes long of what they import later; in one order, so that the same lists are equal."""
    wanted = set(frameworks)
    if wanted.intersection(_TOGETHER):
        wanted.update(name for name in _TOGETHER if _is_installed(name))
    else:
        wanted.update(name for each in frameworks for name in _BESIDE.get(each, ()) if _is_installed(name))
    return [name for framework in sorted(wanted) for name in (framework, *_LATE.get(framework, ()))]


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def environment(backend: str | None = None, hash_seed: int = 1, **others: str) -> dict[str, str]:
    """The environment of a program.

    Args:
        backend: The backend of Keras; None is that of the tests, or TensorFlow.
        hash_seed: Which hashes strings have.
        others: What else differs from the environment of the tests.
    """
    own = {"PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": "1"}  # threads of small models wait for each other
    keras = {"KERAS_BACKEND": backend or os.environ.get("KERAS_BACKEND", "tensorflow")}
    return {**os.environ, **own, **keras, **others}


class _Forker:
    """A process that stands by to become programs."""

    def __init__(self, imports: Sequence[str], environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed in close()
        code = f"from tests.forking import start; start({theirs.fileno()}, {list(imports)!r})"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
            )

    def send(self, request: Request, files: Sequence[int]) -> None:
        socket.send_fds(self._control, [json.dumps(request).encode()], files)

    def failure(self) -> str:
        """What a process wrote that could not import what is needed."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    def close(self) -> None:
        self._control.close()
        self._process.wait()
        self._errors.close()


_forkers: OrderedDict[tuple[Any, ...], _Forker] = OrderedDict()


def _forker(imports: Sequence[str], environment: Mapping[str, str]) -> _Forker:
    kept = {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}
    key = (tuple(imports), *sorted(kept.items()))
    if key not in _forkers:
        if len(_forkers) == _MOST_FORKERS:
            _forkers.popitem(last=False)[1].close()
        _forkers[key] = _Forker(imports, kept)
    _forkers.move_to_end(key)
    return _forkers[key]


@atexit.register
def _close_all() -> None:
    while _forkers:
        _forkers.popitem()[1].close()


class Program:
    """A program that runs, with the methods of `subprocess.Popen`.

    Args:
        arguments: What follows ``python`` in a command: ``-m MODULE``, ``-c CODE`` or a path, then the program's own arguments.
        imports: What is imported before the program begins.
        environment: Its environment, by default that of the tests.
        late: What it has beside that: variables that nothing looks at while it is imported. Programs that differ in these alone
            come from the same process that stands by.
        directory: Its working directory, by default the project's.
        stdout: An open file, or `subprocess.PIPE`.
        stderr: An open file.
    """

    def __init__(
        self,
        arguments: Sequence[str | Path],
        *,
        imports: Sequence[str],
        stdout: IO[Any] | int,
        stderr: IO[Any],
        environment: Mapping[str, str] | None = None,
        late: Mapping[str, str] | None = None,
        directory: str | Path = ROOT,
    ) -> None:
        self.stdout: IO[str] | None = None
        self.returncode: int | None = None
        forker = _forker(imports, dict(os.environ if environment is None else environment))
        read, write = os.pipe()
        self._status = os.fdopen(read, "rb", buffering=0)  # what is not read yet can be waited for
        opened = [write]
        if stdout == subprocess.PIPE:
            reading, output = os.pipe()
            self.stdout = os.fdopen(reading)
            opened.append(output)
        else:
            output = stdout if isinstance(stdout, int) else stdout.fileno()
        opened.append(os.open(os.devnull, os.O_RDONLY))
        try:
            late = {"PYTEST_CURRENT_TEST": os.environ.get("PYTEST_CURRENT_TEST", ""), **(late or {})}
            request = Request([os.fspath(each) for each in arguments], os.fspath(directory), late)
            forker.send(request, [opened[-1], output, stderr.fileno(), write])
        finally:
            for each in opened:
                os.close(each)
        self.pid = self._number()
        if self.pid is None:
            raise RuntimeError(f"a process for programs that need {imports} did not start:\n{forker.failure()}")

    def _number(self) -> int | None:
        found = self._status.read(STATUS.size)
        return STATUS.unpack(found)[0] if found else None

    def poll(self) -> int | None:
        """How it ended, or None as long as it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end.

        Returns:
            The exit status, or the negative number of the signal that killed it.

        Raises:
            subprocess.TimeoutExpired: It still runs after ``timeout`` seconds.
        """
        if self.returncode is None:
            if timeout is not None and not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a program", timeout)
            status = self._number()
            assert status is not None, "the process that had forked it ended"
            self.returncode = os.waitstatus_to_exitcode(status)
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.stdout is not None:
            self.stdout.close()
        self.wait()


def start(arguments: Sequence[str | Path], **options: Any) -> Program | subprocess.Popen[str]:
    """Starts a program; the arguments are those of `Program`."""
    if CAN_FORK:
        return Program(arguments, **options)
    options.pop("imports")
    environment, directory = options.pop("environment", None), options.pop("directory", ROOT)
    environment = {**(os.environ if environment is None else environment), **(options.pop("late", None) or {})}
    return subprocess.Popen([sys.executable, *arguments], env=environment, cwd=directory, text=True, **options)


def run(arguments: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end.

    Args:
        arguments: As of `Program`.
        options: As of `Program`, without the streams.

    Returns:
        How it ended, and what it wrote.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        program = start(arguments, stdout=stdout, stderr=stderr, **options)
        code = program.wait()
        for each in (stdout, stderr):
            each.seek(0)
        return subprocess.CompletedProcess(list(map(str, arguments)), code, stdout.read(), stderr.read())
