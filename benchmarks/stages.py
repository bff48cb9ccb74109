"""Where the time for small values goes: the stages of a save and of a restore, in CPU time for each value.

The state is 20,000 arrays of four float32 in nested dicts, whose graph is saved and restored too, on tmpfs: of NumPy, of PyTorch and of
JAX, each in a process of its own. Variables of milepost are also attached one by one after a restore. Each stage is a function of milepost, timed from outside; what
a stage calls counts in it. The least of all rounds is reported, which the load of the machine disturbs least. Stages that are indented
are part of the one above them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks import runner

COUNT: Final = 20_000
LIBRARIES: Final = ("NumPy", "PyTorch", "JAX")
_OWN: Final = "milepost.Variable"
_LATE_ONES: Final = 2_000
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
    Stage("plan: read the live objects", "milepost.engine.save", "read_state"),
    Stage("walk over the objects", "milepost.engine.save", "walk", 1),
    Stage("name types of containers and plain values", "milepost.engine.save", "type_names", 1),
    Stage("encode the object graph", "milepost.graph.object_graph", "ObjectGraph.serialize"),
    Stage("give the tensors to the writer", "milepost.bundle.writer", "BundleWriter.add_all"),
    Stage("checksums, entries and the data file", "milepost.bundle.writer", "BundleWriter.write_shard"),
    Stage("sort the entries and build the index", "milepost.bundle.writer", "BundleWriter.index"),
    Stage("whole save", "milepost.checkpoint.checkpoint", "Checkpoint.write"),
)
RESTORE: Final = (
    Stage("decode the object graph", "milepost.graph.object_graph", "ObjectGraph.deserialize"),
    Stage("match", "milepost.engine.match", "Matcher.match"),
    Stage("check types and shapes, and decode entries", "milepost.engine.restore", "check_reshaped"),
    Stage("deliver", "milepost.engine.restore", "deliver"),
    Stage("read and verify", "milepost.bundle.fetch", "Fetch.verify", 1),
    Stage("copy into the arrays", "milepost.bundle.fetch", "Fetch.deliver", 1),
    Stage("read, verify and make new arrays", "milepost.engine.assigned", "Assigned.verify", 1),
    Stage("remember what was matched", "milepost.engine.matched_restore", "MatchedRestore._remember"),
    Stage("whole restore", "milepost.checkpoint.checkpoint", "Checkpoint.read"),
    Stage("assert_consumed()", "milepost.engine.status", "CheckpointLoadStatus.assert_consumed"),
)
LATE: Final = (
    Stage("match", "milepost.engine.match", "Matcher.match"),
    Stage("check types and shapes, and decode entries", "milepost.engine.restore", "check_reshaped"),
    Stage("deliver", "milepost.engine.restore", "deliver"),
    Stage("read and verify", "milepost.bundle.fetch", "Fetch.verify", 1),
    Stage("copy into the variable", "milepost.bundle.fetch", "Fetch.deliver", 1),
    Stage("remember what was matched", "milepost.engine.matched_restore", "MatchedRestore._remember"),
    Stage("all that is done for a deferred value", "milepost.engine.restore", "Restoration.settle"),
    Stage("whole assignment of the attribute", "milepost.graph.module", "Tracked.__setattr__"),
)


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


def rounds_of_arrays(make: Callable[[int], Any], directory: Path, count: int) -> Iterator[dict[str, dict[str, float]]]:
    """The CPU seconds for each array, by operation and stage, of each round. A stage that does not occur has none."""
    import milepost

    def made() -> milepost.Checkpoint:
        groups = {f"group{n}": {f"array{m}": make(m) for m in range(100)} for n in range(COUNT // 100)}
        return milepost.Checkpoint(groups=groups)

    saved, live = made(), made()
    for number in range(count):
        save: dict[Stage, float] = {}
        restore: dict[Stage, float] = {}
        with timed(SAVE, save):
            path = saved.write(directory / f"ckpt-{number}")
        with timed(RESTORE, restore):
            live.read(path).assert_consumed()
        yield {"save": _each(save, COUNT), "restore": _each(restore, COUNT)}


def rounds_of_late_variables(directory: Path, count: int) -> Iterator[dict[str, dict[str, float]]]:
    """The same for variables that are attached after a restore."""
    import milepost

    def made() -> dict[str, milepost.Variable]:
        return {f"v{number}": milepost.Variable(np.zeros(4, np.float32)) for number in range(_LATE_ONES)}

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
        yield {"late": _each(spent, _LATE_ONES)}


def _each(spent: Mapping[Stage, float], count: int) -> dict[str, float]:
    return {stage.what: seconds / count for stage, seconds in spent.items()}


def child(task: Mapping[str, Any]) -> None:
    """Measures one kind of value. The first round warms up."""
    library, directory, count = task["library"], Path(task["directory"]), task["rounds"] + 1
    late = rounds_of_late_variables(directory, count)
    rounds = late if library == _OWN else rounds_of_arrays(maker(library), directory, count)
    runner.answer({"rounds": list(rounds)[1:]})


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The CPU seconds of all stages in all rounds, of each kind of value in a process of its own."""
    samples = []
    for library in (*LIBRARIES, _OWN):
        with runner.scratch(options.memory) as directory:
            task = {"library": library, "directory": str(directory), "rounds": options.rounds}
            found = runner.ask(__spec__.name, task, _LIMIT_S)
        if "failure" in found:
            raise SystemExit(f"{library}: {found['failure']}")
        for number, operations in enumerate(found["rounds"]):
            for operation, stages in operations.items():
                facts = {"round": number, "library": library, "operation": operation}
                samples += [{**facts, "stage": stage, "seconds": seconds} for stage, seconds in stages.items()]
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    parts = [
        "## Stages of a save and a restore of small values",
        f"CPU time in microseconds for each of {COUNT:,} arrays of four float32 in nested dicts, on tmpfs: the least of {options.rounds} rounds. "
        "Stages that are indented are part of the one above them. A dash: there is no such stage. "
        f"Of variables that are attached after a restore, there are {_LATE_ONES:,}; timing takes about two microseconds for each stage too.",
    ]
    for operation, what, stages, libraries in (
        ("save", "save", SAVE, LIBRARIES),
        ("restore", "restore", RESTORE, LIBRARIES),
        ("late", "variable that is attached after the restore", LATE, [_OWN]),
    ):
        rows = []
        for stage in stages:
            row = [f"{'&emsp;' * stage.level}{stage.what}"]
            for library in libraries:
                found = runner.series(samples, "seconds", library=library, operation=operation, stage=stage.what)
                row.append(f"{min(found.values) * 1e6:.1f}" if found.values else "-")
            rows.append(row)
        parts.append(runner.table([what, *libraries], rows))
    return "\n\n".join(parts)


def main() -> None:
    """Measures and reports."""
    runner.run(runner.arguments(__doc__, "stages", rounds=10), child, measure, text)


if __name__ == "__main__":
    main()
