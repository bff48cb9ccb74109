"""What saving and restoring cost a variable when there is next to nothing in it.

The state is a model of layers with ten variables of 64 float32 each. Its files are on tmpfs, so that what is left is the
work of the library itself: walking the objects, planning, encoding, the table, and matching on the way back.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import runner
from benchmarks.contenders import CONTENDERS, Array

NAMES = [
    name
    for name in CONTENDERS
    if name not in {"torch, mmap", "h5py", "Orbax", "milepost, no fsync", "milepost, read once", "milepost, two files"}
]
SIZES = [1_000, 20_000]
LENGTH = 64
OPERATIONS = ("save", "restore")
LIMIT_S = 300.0


def child(task: Mapping[str, Any]) -> None:
    """Does one operation of one contender."""
    directory, operation, count = Path(task["directory"]), task["operation"], task["variables"]
    values = np.arange(count * LENGTH, dtype=np.float32).reshape(count, LENGTH)
    state: dict[str, dict[str, Array]] = {}
    for index, value in enumerate(values):
        array = value.copy() if operation == "save" else np.full_like(value, -1)
        state.setdefault(f"layer{index // 10}", {})[f"variable{index % 10}"] = array

    contender = CONTENDERS[task["contender"]]()
    contender.warm_up(directory)
    contender.hold(state)
    call = contender.save if operation == "save" else contender.restore
    spare = 4 * values.nbytes + (64 << 20)
    first = runner.timed(lambda: call(directory), spare)
    if operation == "save":
        directory /= "again"
        directory.mkdir()
    again = runner.timed(lambda: call(directory), spare)
    if operation == "restore":
        live = dict(contender.values())
        for index, value in enumerate(values):
            if not np.array_equal(live[f"layer{index // 10}/variable{index % 10}"], value):
                raise AssertionError(f"variable {index} was not restored")
    runner.answer({"first": first.seconds / count * 1e6, "again": again.seconds / count * 1e6})


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds, of all sizes. Who was too slow once is not asked again for as many or more."""
    names = [name for name in options.only or NAMES if CONTENDERS[name].installed()]
    samples: list[dict[str, Any]] = []
    beaten: set[str] = set()
    for count in options.sizes:
        for number, name in runner.interleaved(options.rounds, names):
            if name in beaten:
                continue
            with runner.scratch(options.memory) as directory:
                for operation in OPERATIONS:
                    task = {"contender": name, "operation": operation, "variables": count, "directory": str(directory)}
                    result = runner.ask(__spec__.name, task, LIMIT_S)
                    sample = {"variables": count, "round": number, "contender": name, "operation": operation} | result
                    samples.append(sample)
                    print(*sample.values(), flush=True)
                    if "failure" in result:
                        beaten.add(name)
                        break
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    header = ["", *(f"{operation} {count:,}" for operation in OPERATIONS for count in options.sizes)]
    tables = []
    for quantity in ("first", "again"):
        rows = []
        for name in dict.fromkeys(sample["contender"] for sample in samples):
            cells = [name]
            for operation in OPERATIONS:
                for count in options.sizes:
                    where = {"contender": name, "operation": operation, "variables": count}
                    cells.append(runner.series(samples, quantity, **where).cell(1, 1))
            rows.append(cells)
        tables.append(runner.table(header, rows))
    return "\n\n".join(
        [
            f"## Microseconds a variable, for variables of {LENGTH} float32",
            f"Median (least-most) of {options.rounds} rounds, on {runner.filesystem(options.memory)}, each in a fresh "
            "process. milepost and tf.train.Checkpoint save and restore the graph of objects as well; the others have "
            "names and arrays only. A dash: not tried after a failure; no process may take more than "
            f"{LIMIT_S:.0f} s, with making the variables.",
            "### The first save or restore of these variables in the process",
            tables[0],
            "### The second, of a save into other files",
            tables[1],
        ]
    )


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, "engine_overhead", rounds=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of variables")
    parser.add_argument("--only", action="append", choices=NAMES, help="a contender; may be given more than once")
    runner.run(parser, child, measure, text)


if __name__ == "__main__":
    main()
