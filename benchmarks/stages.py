"""Where the time for small values goes: the stages of a save and of a restore, in CPU time for each value.

The state is 20,000 NumPy arrays of four float32 in nested dicts, whose graph is saved and restored too, on tmpfs. Each stage is a
function of milepost, timed from outside; what a stage calls counts in it. The least of all rounds is reported, which the load of
the machine disturbs least. Stages that are indented are part of the one above them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks import runner

COUNT: Final = 20_000


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
    Stage("check types and shapes, and decode entries", "milepost.engine.restore", "check"),
    Stage("deliver", "milepost.engine.restore", "deliver"),
    Stage("read and verify", "milepost.bundle.fetch", "Fetch.verify", 1),
    Stage("copy into the arrays", "milepost.bundle.fetch", "Fetch.deliver", 1),
    Stage("remember what was matched", "milepost.engine.matched_restore", "MatchedRestore._remember"),
    Stage("whole restore", "milepost.checkpoint.checkpoint", "Checkpoint.read"),
    Stage("assert_consumed()", "milepost.engine.status", "CheckpointLoadStatus.assert_consumed"),
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


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The CPU seconds of all stages in all rounds."""
    import milepost

    def make() -> milepost.Checkpoint:
        groups = {
            f"group{n}": {f"array{m}": np.full(4, m, np.float32) for m in range(100)} for n in range(COUNT // 100)
        }
        return milepost.Checkpoint(groups=groups)

    saved, live = make(), make()
    samples: list[dict[str, Any]] = []
    with runner.scratch(options.memory) as directory:
        path = saved.write(directory / "warm-up")
        live.read(path).assert_consumed()
        for number in range(options.rounds):
            for operation, stages in (("save", SAVE), ("restore", RESTORE)):
                spent: dict[Stage, float] = {}
                with timed(stages, spent):
                    if operation == "save":
                        path = saved.write(directory / f"ckpt-{number}")
                    else:
                        live.read(path).assert_consumed()
                samples += [
                    {"round": number, "operation": operation, "stage": stage.what, "seconds": spent[stage]}
                    for stage in stages
                ]
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    parts = [
        "## Stages of a save and a restore of small values",
        f"CPU time for each of {COUNT:,} NumPy arrays of four float32 in nested dicts, on tmpfs: the least of {options.rounds} rounds. "
        "Stages that are indented are part of the one above them.",
    ]
    for operation, stages in (("save", SAVE), ("restore", RESTORE)):
        rows = []
        for stage in stages:
            found = runner.series(samples, "seconds", operation=operation, stage=stage.what)
            rows.append([f"{'&emsp;' * stage.level}{stage.what}", f"{min(found.values) / COUNT * 1e6:.1f}"])
        parts.append(runner.table([operation, "us each"], rows))
    return "\n\n".join(parts)


def main() -> None:
    """Measures and reports."""
    runner.run(runner.arguments(__doc__, "stages", rounds=10), None, measure, text)


if __name__ == "__main__":
    main()
