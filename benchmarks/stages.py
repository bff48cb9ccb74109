"""Where the time for small values goes: the stages of a save and of a restore, in CPU time for each value, and what a first use imports.

The states are 20,000 arrays of four float32 in nested dicts, of NumPy, of PyTorch and of JAX, 100,000 numbers of Python in a list, and a
chain of 5,000 modules that each hold the next one and a variable. Their graphs are saved and restored too, on tmpfs, each in a process
of its own. Variables of milepost are also attached one by one after a restore. Each stage is a function of milepost, timed from outside; what
a stage calls counts in it. The least of all rounds is reported, which the load of the machine disturbs least. Stages that are indented
are part of the one above them.

A first use makes a `Checkpoint` in a new process that has imported NumPy. Python itself tells what each import takes
(``-X importtime``).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks import runner

COUNT: Final = 20_000
NUMBERS: Final = 100_000
CHAIN: Final = 5_000
LIBRARIES: Final = ("NumPy", "PyTorch", "JAX")
LIST: Final = "list of numbers"
MODULES: Final = "chain of modules"
STATES: Final = (*LIBRARIES, LIST, MODULES)
LATE_ONES: Final = "milepost.Variable"
FIRST_USE: Final = "first use"
_LATE_COUNT: Final = 2_000
_LIMIT_S: Final = 300.0


class Stage(NamedTuple):
    """A function that is timed.

    Attributes:
        what: What it does.
        module: Where it is looked up when it is called.
        name: Its name there.
        level: How deep it is among the others.
    """

    what: str
    module: str
    name: str
    level: int = 0


SAVE: Final = (
    Stage("plan: read the live objects", "milepost.saving.save", "read_state"),
    Stage("walk over the objects", "milepost.saving.save", "walk", 1),
    Stage("name types of containers and plain values", "milepost.saving.save", "type_names", 1),
    Stage("encode the object graph", "milepost.graph.saved.object_graph", "ObjectGraph.serialize"),
    Stage("give the tensors to the writer", "milepost.bundle.writer", "BundleWriter.add_all"),
    Stage("checksums, entries and the data file", "milepost.bundle.writer", "BundleWriter.write_shard"),
    Stage("sort the entries and build the index", "milepost.bundle.writer", "BundleWriter.index"),
    Stage("whole save", "milepost.checkpoint.checkpoint", "Checkpoint.write"),
)
RESTORE: Final = (
    Stage("decode the object graph", "milepost.graph.saved.object_graph", "ObjectGraph.deserialize"),
    Stage("match", "milepost.restoring.match", "Matcher.match"),
    Stage("check types and shapes, and decode entries", "milepost.restoring.restore", "Restoration._check"),
    Stage("deliver", "milepost.restoring.restore", "deliver"),
    Stage("read and verify", "milepost.bundle.fetch", "Fetch.verify", 1),
    Stage("copy into the arrays", "milepost.bundle.fetch", "Fetch.deliver", 1),
    Stage("read, verify and make new arrays", "milepost.restoring.assigned", "Assigned.verify", 1),
    Stage("remember what was matched", "milepost.restoring.restore", "Restoration._remember"),
    Stage("whole restore", "milepost.checkpoint.checkpoint", "Checkpoint.read"),
    Stage("assert_consumed()", "milepost.restoring.status", "CheckpointLoadStatus.assert_consumed"),
)
LATE: Final = (
    Stage("match", "milepost.restoring.match", "Matcher.match"),
    Stage("check types and shapes, and decode entries", "milepost.restoring.restore", "Restoration._check"),
    Stage("deliver", "milepost.restoring.restore", "deliver"),
    Stage("read and verify", "milepost.bundle.fetch", "Fetch.verify", 1),
    Stage("copy into the variable", "milepost.bundle.fetch", "Fetch.deliver", 1),
    Stage("remember what was matched", "milepost.restoring.restore", "Restoration._remember"),
    Stage("all that is done for a deferred value", "milepost.restoring.restore", "Restoration.settle"),
    Stage("whole assignment of the attribute", "milepost.graph.module", "Tracked.__setattr__"),
)
OTHERS: Final = "modules of Python and others"
_IMPORTED_FROM: Final = {
    "milepost": "modules of milepost",
    "google": "protobuf and google-crc32c",
    "google_crc32c": "protobuf and google-crc32c",
    "ml_dtypes": "ml_dtypes",
    "numpy": "more of NumPy",
}
IMPORTED: Final = (*dict.fromkeys(_IMPORTED_FROM.values()), OTHERS)


@contextmanager
def timed(stages: Sequence[Stage], spent: dict[Stage, float]) -> Iterator[None]:
    """Adds up the CPU seconds of each stage while it lasts."""
    undo: list[Callable[[], None]] = []
    for stage in stages:
        owner: Any = importlib.import_module(stage.module)
        *classes, name = stage.name.split(".")
        for each in classes:
            owner = getattr(owner, each)
        original = vars(owner)[name]
        inside = original.__func__ if isinstance(original, classmethod) else original

        def around(*args: Any, _stage: Stage = stage, _call: Callable[..., Any] = inside, **named: Any) -> Any:
            start = time.process_time()
            try:
                return _call(*args, **named)
            finally:
                spent[_stage] = spent.get(_stage, 0.0) + time.process_time() - start

        wrapped: Any = functools.wraps(inside)(around)
        setattr(owner, name, classmethod(wrapped) if isinstance(original, classmethod) else wrapped)
        undo.append(functools.partial(setattr, owner, name, original))
    try:
        yield
    finally:
        for step in undo:
            step()


def maker(library: str) -> Callable[[int], Any]:
    """The function that makes an array of four float32, which are all of the given number."""
    if library == "PyTorch":
        import torch

        return lambda number: torch.full((4,), float(number))
    if library == "JAX":
        import jax.numpy as jnp

        return lambda number: jnp.full(4, number, jnp.float32)
    return lambda number: np.full(4, number, np.float32)


def make_state(state: str) -> tuple[Any, int]:
    """Something to be saved, and the number of its values."""
    import milepost

    if state == LIST:
        return [float(number) for number in range(NUMBERS)], NUMBERS
    if state == MODULES:
        first: Any = milepost.Module()
        last = first
        for left in reversed(range(CHAIN)):
            last.value = milepost.Variable(np.zeros(4, np.float32))
            if left:
                last.next = milepost.Module()
                last = last.next
        return first, CHAIN
    make = maker(state)
    return {f"group{n}": {f"array{m}": make(m) for m in range(100)} for n in range(COUNT // 100)}, COUNT


def rounds_of_state(state: str, directory: Path, count: int) -> Iterator[dict[str, dict[str, float]]]:
    """The CPU seconds for each value, by operation and stage, of each round. A stage that does not occur has none."""
    import milepost

    (first, values), (second, _) = make_state(state), make_state(state)
    saved, live = milepost.Checkpoint(state=first), milepost.Checkpoint(state=second)
    for number in range(count):
        save: dict[Stage, float] = {}
        restore: dict[Stage, float] = {}
        with timed(SAVE, save):
            path = saved.write(directory / f"ckpt-{number}")
        with timed(RESTORE, restore):
            live.read(path).assert_consumed()
        yield {"save": _each(save, values), "restore": _each(restore, values)}


def rounds_of_late_variables(directory: Path, count: int) -> Iterator[dict[str, dict[str, float]]]:
    """The same for variables that are attached after a restore."""
    import milepost

    def made() -> dict[str, milepost.Variable]:
        return {f"v{number}": milepost.Variable(np.zeros(4, np.float32)) for number in range(_LATE_COUNT)}

    def attach(model: milepost.Module, variables: Mapping[str, milepost.Variable]) -> None:
        for name, variable in variables.items():
            setattr(model, name, variable)

    for number in range(count):
        saved, live, spent = milepost.Module(), milepost.Module(), dict[Stage, float]()
        attach(saved, made())
        milepost.Checkpoint(m=live).read(milepost.Checkpoint(m=saved).write(directory / f"late-{number}"))
        variables = made()
        with timed(LATE, spent):
            attach(live, variables)
        yield {"late": _each(spent, _LATE_COUNT)}


def _each(spent: Mapping[Stage, float], count: int) -> dict[str, float]:
    return {stage.what: seconds / count for stage, seconds in spent.items()}


def rounds_of_first_use(count: int) -> Iterator[dict[str, dict[str, float]]]:
    """The seconds that imports take in each round, by the package that is imported, without what is imported in turn."""
    code = "import numpy, milepost, sys; sys.stderr.write('begin\\n'); milepost.Checkpoint(v=numpy.zeros(3))"
    for _ in range(count):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
        )
        spent = dict.fromkeys(IMPORTED, 0.0)
        for line in done.stderr.partition("begin\n")[2].splitlines():
            own, _, name = line.removeprefix("import time:").split("|")
            package = name.strip().partition(".")[0]
            spent[_IMPORTED_FROM.get(package, OTHERS)] += float(own) / 1e6
        yield {"first use": spent}


def child(task: Mapping[str, Any]) -> None:
    """Measures one state. The first round warms up."""
    state, directory, count = task["state"], Path(task["directory"]), task["rounds"] + 1
    if state == LATE_ONES:
        rounds = rounds_of_late_variables(directory, count)
    elif state == FIRST_USE:
        rounds = rounds_of_first_use(count)
    else:
        rounds = rounds_of_state(state, directory, count)
    runner.answer({"rounds": list(rounds)[1:]})


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The CPU seconds of all stages in all rounds, of each state in a process of its own."""
    samples = []
    for state in (*STATES, LATE_ONES, FIRST_USE):
        with runner.scratch(options.memory) as directory:
            task = {"state": state, "directory": str(directory), "rounds": options.rounds}
            found = runner.ask(__spec__.name, task, _LIMIT_S)
        if "failure" in found:
            raise SystemExit(f"{state}: {found['failure']}")
        for number, operations in enumerate(found["rounds"]):
            for operation, stages in operations.items():
                facts = {"round": number, "state": state, "operation": operation}
                samples += [{**facts, "stage": stage, "seconds": seconds} for stage, seconds in stages.items()]
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    parts = [
        "## Stages of a save and a restore of small values",
        f"CPU time in microseconds for each value, on tmpfs: the least of {options.rounds} rounds. There are {COUNT:,} arrays of four float32 "
        f"in nested dicts, {NUMBERS:,} numbers in a list, or a chain of {CHAIN:,} modules, each below the last, with a variable each. "
        "Stages that are indented are part of the one above them. A dash: there is no such stage. "
        f"Of variables that are attached after a restore, there are {_LATE_COUNT:,}; timing takes about two microseconds for each stage too.",
    ]
    for operation, what, stages, states in (
        ("save", "save", SAVE, STATES),
        ("restore", "restore", RESTORE, STATES),
        ("late", "variable that is attached after the restore", LATE, [LATE_ONES]),
    ):
        rows = [
            [
                f"{'&emsp;' * stage.level}{stage.what}",
                *(_least(samples, operation, state, stage.what, 1e6) for state in states),
            ]
            for stage in stages
        ]
        parts.append(runner.table([what, *states], rows))
    rows = [[package, _least(samples, "first use", FIRST_USE, package, 1e3)] for package in IMPORTED]
    parts += [
        "A first use imports these, in milliseconds, measured by `python -X importtime`, which takes time itself:",
        runner.table(["first use, after NumPy and `import milepost`", "ms"], rows),
    ]
    return "\n\n".join(parts)


def _least(samples: Sequence[Mapping[str, Any]], operation: str, state: str, stage: str, scale: float) -> str:
    found = runner.series(samples, "seconds", state=state, operation=operation, stage=stage)
    return f"{min(found.values) * scale:.1f}" if found.values else "-"


def main() -> None:
    """Measures and reports."""
    runner.run(runner.arguments(__doc__, "stages", rounds=10), child, measure, text)


if __name__ == "__main__":
    main()
