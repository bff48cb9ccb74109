"""Stops a process after each of its file operations, and copies what a kill at that moment would leave.

A process that is killed leaves its files as they are, so a copy made while all its threads stand still is what every later
program would find. One run shows all moments, where killing needs a run for each. `strace` sends the stops
(``inject=...:signal=SIGSTOP``) and writes down the calls, from which `benchmarks.peers.syncs` sees what was synced.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,truncate,fallocate,copy_file_range,sendfile,"
    "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "fsync,fdatasync,syncfs,sync_file_range,msync"
)
_GO, _READY, _DONE = "go", "ready", "done"
_PATIENCE = 120.0


class CannotTraceError(RuntimeError):
    """strace is not installed, or may not trace here."""


@dataclass
class Watched:
    """What a process did between `until_told` and `finished`.

    Attributes:
        calls: Its calls, as strace writes them: ``fsync(3</path/of/the/file>) = 0``.
        moments: A copy of the directory at each moment at which it differed from the one before.
    """

    calls: list[str] = field(default_factory=list)
    moments: list[Path] = field(default_factory=list)


def until_told() -> None:
    """In the watched process: waits until it is watched. All that comes next is seen."""
    print(_READY, flush=True)
    if sys.stdin.readline().strip() != _GO:
        raise SystemExit("nobody watches")


def finished() -> None:
    """In the watched process: says that what was to be watched has ended."""
    print(_DONE, flush=True)


def watch(
    command: Sequence[str], directory: Path, copies: Path, environment: Mapping[str, str] | None = None
) -> Watched:
    """Runs a command that calls `until_told` and `finished`, and stops it after each file operation between them.

    Args:
        command: The command and its arguments.
        directory: What the command writes into.
        copies: A directory for the copies, which is made.
        environment: The environment of the command, if not that of this process.

    Raises:
        CannotTraceError: strace is missing, or the system does not allow it to trace.
        RuntimeError: The command failed.
    """
    if shutil.which("strace") is None:
        raise CannotTraceError("strace is not installed")
    copies.mkdir(parents=True)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    tracer = None
    try:
        if not any(line.strip() == _READY for line in process.stdout):
            raise RuntimeError(f"it ended before it was ready: {command}")
        reading, writing = os.pipe()
        tracer = subprocess.Popen(
            [
                "strace",
                "-f",
                "-y",
                "-s",
                "0",
                "-p",
                str(process.pid),
                "-o",
                f"/dev/fd/{writing}",
                "-e",
                f"trace={CALLS}",
                "-e",
                f"inject={CALLS}:signal=SIGSTOP",
            ],
            pass_fds=[writing],
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(writing)
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
        if "attached" not in said:
            os.close(reading)
            raise CannotTraceError(said.strip())
        process.stdin.write(f"{_GO}\n")
        process.stdin.flush()
        alarm = threading.Timer(_PATIENCE, process.kill)
        alarm.start()
        with open(reading, errors="replace") as lines:
            watched = _follow(process.pid, lines, directory, copies)
        alarm.cancel()
        process.stdin.close()
        if not any(line.strip() == _DONE for line in process.stdout) or process.wait(_PATIENCE):
            raise RuntimeError(f"it did not finish: {command}")
        return watched
    finally:
        for child in (tracer, process):
            if child is not None and child.poll() is None:
                child.kill()
                child.wait()


def _follow(pid: int, lines: Iterator[str], directory: Path, copies: Path) -> Watched:
    """Reads the trace until the process ends, makes a copy at each stop, and lets it go on."""
    watched = Watched()
    last = ""
    stopped: set[str] = set()
    for line in lines:
        thread, event = line.strip().split(maxsplit=1)
        if not event.startswith(("---", "+++")):
            watched.calls.append(event)
        elif event.startswith("--- stopped by SIGSTOP"):
            stopped.add(thread)
            if stopped >= set(os.listdir(f"/proc/{pid}/task")):
                now = _fingerprint(directory)
                if now != last:
                    copy = copies / f"{len(watched.moments):04}"
                    shutil.copytree(directory, copy, symlinks=True)
                    watched.moments.append(copy)
                    last = now
                stopped.clear()
                os.kill(pid, signal.SIGCONT)
    return watched


def _fingerprint(directory: Path) -> str:
    """Something that differs where names or contents differ."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        digest.update(str(path.relative_to(directory)).encode() + b"\0")
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()
