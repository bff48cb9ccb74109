"""What the programs share: ``python -m benchmarks.versions.training PROGRAM DIRECTORY KILL [--without]``.

The directory is that of one run, in any number of processes. The process kills itself after step KILL, if that is not 0. The last line
that it prints is what it has seen, as JSON. With ``--without`` it trains without milepost.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

STEPS: Final = 12
EVERY: Final = 3
"""Steps between two saves."""
MODULES: Final = ("with_jax", "with_torch", "with_keras", "with_files")


class Run:
    """One process of a run.

    Args:
        directory: The directory of the run.
        kill: The step after which the process kills itself.
        without: Whether it trains without milepost.
    """

    def __init__(self, directory: str, kill: int = 0, *, without: bool = False) -> None:
        self.saves = os.path.join(directory, "run")
        self.kill = kill
        self.without = without
        self._record = Path(directory, "record.json")
        self._seen: dict[str, Any] = {"restored": None}

    def begin(self, step: int, arrays: Iterable[Any]) -> None:
        """Compares what was restored with what the process that saved it had."""
        if step:
            expected = json.loads(self._record.read_text())[str(step)]
            self._seen |= {"step": step, "restored": digest(arrays) == expected}

    def after(self, step: int, arrays: Iterable[Any]) -> None:
        """Records what a step has made, and is killed if it is time."""
        record = json.loads(self._record.read_text()) if self._record.exists() else {}
        self._record.write_text(json.dumps({**record, str(step): digest(arrays)}))
        if step == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    def end(self, arrays: Iterable[Any]) -> None:
        """Tells what the run has come to."""
        print(json.dumps({**self._seen, "final": digest(arrays)}))

    def tell(self, *, same: bool) -> None:
        """Tells of a program that compares by itself."""
        print(json.dumps({"restored": same, "final": "compared" if same else "different"}))


def digest(arrays: Iterable[Any]) -> str:
    """The element types, shapes and bytes of arrays, in short."""
    total = hashlib.sha256()
    for each in arrays:
        array = np.asarray(each)
        total.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return total.hexdigest()[:16]


def loop(run: Run, objects: dict[str, Any], step: Callable[[int], None], arrays: Callable[[], Iterable[Any]]) -> None:
    """Trains objects, and saves them with the random state in a `milepost.Checkpoint`."""
    manager: Any = None
    counter: Any = None
    done = 0
    if not run.without:
        import milepost

        counter = milepost.Variable(0)
        checkpoint = milepost.Checkpoint(step=counter, random=milepost.RandomState(), **objects)
        manager = milepost.CheckpointManager(checkpoint, run.saves, max_to_keep=2)
        manager.restore_or_initialize()
        done = int(counter)
    run.begin(done, arrays())
    for number in range(done, STEPS):
        step(number)
        if manager is not None and (number + 1) % EVERY == 0:
            counter.assign(number + 1)
            manager.save()
        run.after(number + 1, arrays())
    run.end(arrays())


def batch(number: int) -> tuple[Any, Any]:
    """The inputs and targets of a step."""
    random = np.random.default_rng(number)
    inputs = random.normal(size=(8, 4)).astype(np.float32)
    return inputs, inputs.sum(axis=1, keepdims=True)


def main(program: str, directory: str, kill: str, *options: str) -> None:
    """Runs a program."""
    for name in MODULES:
        functions = importlib.import_module(f"benchmarks.versions.{name}").PROGRAMS
        if program in functions:
            functions[program](Run(directory, int(kill), without="--without" in options))
            return
    raise SystemExit(f"there is no program {program}")


if __name__ == "__main__":
    main(*sys.argv[1:])
