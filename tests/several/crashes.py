"""Kills, stops or fails one of several processes before each of its file operations, and looks what the others say and find.

Run as a program, it prints one line of JSON for each case. Its processes are forked from one that has imported milepost.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.random  # used in each process

# By name, because `import milepost` alone imports little: each forked process would import the rest again.
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from milepost.coordination import FileCoordinator
from milepost.errors import AfterCommitError, MilepostError, StorageError
from milepost.storage import LocalStorage

SIZE = 3
TIMEOUT = 1.0
INCREMENTAL = " incrementally"
KINDS = ("killed", "stopped", "disk full", f"killed{INCREMENTAL}", f"disk full{INCREMENTAL}")


class Failing(LocalStorage):
    """Does something in the place of one of its operations, counted from 0; -1 for none."""

    def __init__(self, at: int, kind: str) -> None:
        super().__init__()
        self.count = 0
        self._at, self._kind = at, kind

    def _before(self) -> None:
        self.count += 1
        if self.count - 1 != self._at:
            return
        if self._kind.startswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._kind == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            raise StorageError("no space left on device", errno=errno.ENOSPC, file="somewhere")

    def open(self, path: str) -> Any:
        self._before()
        return super().open(path)

    def create(self, path: str) -> Any:
        self._before()
        return super().create(path)

    def rename(self, source: str, target: str) -> None:
        self._before()
        super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._before()
        super().link(source, target)

    def remove(self, path: str) -> None:
        self._before()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._before()
        super().sync_directory(path)


def state(step: int, rank: int) -> dict[str, Any]:
    """What a process holds."""
    return {
        "step": Variable(step),
        "weights": np.full(1000, float(step)),
        "base": [
            np.arange(30_000.0),
            np.ones(30_000),
        ],  # which never changes, so that two processes can take a file over
        "generator": np.random.default_rng([step, rank]),
    }


def save(rank: int, directory: Path, at: int, kind: str, failing: int) -> dict[str, Any]:
    """One process: saves step 1 without trouble, then step 2 with; returns what it has seen."""
    coordinator = FileCoordinator(directory / "messages", rank, SIZE)
    plain = CheckpointOptions(coordinator=coordinator, process_timeout=30)
    checkpoint: Any = Checkpoint(**state(1, rank))
    manager = CheckpointManager(checkpoint, directory / "run", max_to_keep=2, options=plain)
    manager.save()
    storage = Failing(at if rank == failing else -1, kind)
    checkpoint.step.assign(2)
    checkpoint.weights = np.full(1000, 2.0)
    options = CheckpointOptions(
        coordinator=coordinator, process_timeout=TIMEOUT, storage=storage, incremental=kind.endswith(INCREMENTAL)
    )
    begun = time.monotonic()
    try:
        manager.save(options=options)
        outcome = "saved"
    except AfterCommitError:
        outcome = "saved, and then something failed"
    except MilepostError as error:
        outcome = f"failed: {type(error).__name__}: {error.problem}"
    return {
        "outcome": outcome,
        "seconds": time.monotonic() - begun,
        "operations": storage.count,
        "counter": int(checkpoint.save_counter),
    }


def resume(rank: int, directory: Path, size: int) -> dict[str, Any]:
    """One process of the next run: restores, and saves again."""
    coordinator = FileCoordinator(directory / "more messages", rank, size)
    options = CheckpointOptions(coordinator=coordinator, process_timeout=30)
    checkpoint: Any = Checkpoint(**state(0, rank))
    manager = CheckpointManager(checkpoint, directory / "run", max_to_keep=2, options=options)
    path = manager.restore_or_initialize()
    assert manager.status is not None
    manager.status.assert_consumed()
    step = int(checkpoint.step)
    drawn = bool(checkpoint.generator.random() == np.random.default_rng([1, rank]).random())
    whole = bool((checkpoint.weights == float(step)).all() and (checkpoint.base[0] == np.arange(30_000.0)).all())
    again = manager.save()
    names = [os.path.basename(each or "") for each in (path, again)]
    return {"path": names[0], "step": step, "whole": whole, "drawn": drawn, "again": names[1]}


def forked(work: Any, directory: Path, size: int, *, stopped: int | None = None, deadline: float = 60) -> list[Any]:
    """What ``work(rank)`` returns in each of several processes; None for one that was killed, or stays stopped."""
    children = {}
    for rank in range(size):
        child = os.fork()
        if child == 0:
            try:
                (directory / f"result-{rank}").write_text(json.dumps(work(rank)))
                os._exit(0)
            except BaseException as error:
                (directory / f"result-{rank}").write_text(json.dumps({"crash": repr(error)}))
                os._exit(1)
        children[rank] = child
    end = time.monotonic() + deadline
    left = dict(children)
    while left and time.monotonic() < end:
        for rank, child in list(left.items()):
            if os.waitpid(child, os.WNOHANG)[0]:
                del left[rank]
        if stopped is not None and set(left) == {stopped}:
            break
        time.sleep(0.01)
    late = sorted(set(left) - {stopped})
    end = time.monotonic() + 20
    while stopped is not None and set(left) == {stopped} and time.monotonic() < end:
        # What it does when it goes on must change nothing that the others have said. On a busy machine it stops later than this.
        os.kill(left[stopped], signal.SIGCONT)
        time.sleep(0.01)
        if os.waitpid(left[stopped], os.WNOHANG)[0]:
            del left[stopped]
    for child in left.values():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not late, f"processes {late} still wait after {deadline} seconds"
    results = []
    for rank in range(size):
        path = directory / f"result-{rank}"
        results.append(json.loads(path.read_text()) if path.exists() else None)
        path.unlink(missing_ok=True)
    return results


def case(kind: str, failing: int, at: int, base: Path) -> dict[str, Any]:
    """One case: what each process says, and what the next run finds."""
    with tempfile.TemporaryDirectory(dir=base) as name:
        directory = Path(name)
        (directory / "run").mkdir()
        stopped = failing if kind == "stopped" else None
        said = forked(lambda rank: save(rank, directory, at, kind, failing), directory, SIZE, stopped=stopped)
        visible = (directory / "run" / "ckpt-2.index").exists()
        found = forked(lambda rank: resume(rank, directory, SIZE), directory, SIZE)
        left = sorted(path.name for path in (directory / "run").iterdir() if path.name.endswith(".tmp"))
    return {"kind": kind, "failing": failing, "at": at, "said": said, "visible": visible, "found": found, "left": left}


def main() -> None:
    base = Path(sys.argv[1])
    kinds, ranks = sys.argv[2].split(","), [int(rank) for rank in sys.argv[3].split(",")]
    for failing in ranks:
        for kind in kinds:
            said = case(kind, failing, 1 << 30, base)["said"]
            for at in range(said[failing]["operations"]):
                print(json.dumps(case(kind, failing, at, base)), flush=True)


if __name__ == "__main__":
    main()
