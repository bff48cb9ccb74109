"""How near saving and restoring a large state comes to writing and reading its bytes.

The state is that of GPT-2 (124 million parameters) under Adam: 444 tensors of float32, 1.49 GB. It is saved and restored
in memory (tmpfs), and on a disk, where a save counts until everything is durable and a restore starts with nothing
cached. Restoring ends with the values in the memory that the model uses, and all of them are compared afterwards.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import runner, tables
from benchmarks.contenders import CONTENDERS, RAW, Array

NAMES = [name for name in CONTENDERS if name != "TensorFlow's SaveV2, RestoreV2"]
LIMIT_S = 300.0
_SEED = 1


def shapes(width: int, layers: int) -> dict[str, tuple[int, ...]]:
    """The parameters of GPT-2 of some size."""
    found: dict[str, tuple[int, ...]] = {"token_embedding": (50257, width), "position_embedding": (1024, width)}
    for layer in range(layers):
        for name, inputs, outputs in (
            ("attention", width, 3 * width),
            ("projection", width, width),
            ("expand", width, 4 * width),
            ("contract", 4 * width, width),
        ):
            found[f"layer{layer}_{name}_kernel"] = (inputs, outputs)
            found[f"layer{layer}_{name}_bias"] = (outputs,)
        for norm in ("norm1", "norm2"):
            found[f"layer{layer}_{norm}_scale"] = (width,)
            found[f"layer{layer}_{norm}_shift"] = (width,)
    return found | {"norm_scale": (width,), "norm_shift": (width,)}


def tensors(task: Mapping[str, Any]) -> Iterator[tuple[str, str, Array]]:
    """Group and name of each tensor, and memory for it that nothing has touched yet."""
    for group in ("parameters", "first_moment", "second_moment"):
        for name, shape in shapes(task["width"], task["layers"]).items():
            yield group, name, np.empty(shape, np.float32)


def check(task: Mapping[str, Any], live: Mapping[str, Array]) -> None:
    """Compares what was restored with the values that were saved."""
    random = np.random.Generator(np.random.SFC64(_SEED))
    memory = np.empty(max(array.size for array in live.values()), np.float32)
    for group, name, _ in tensors(task):
        found = live[f"{group}/{name}"]
        value = memory[: found.size].reshape(found.shape)
        random.random(out=value, dtype=np.float32)
        if not np.array_equal(found, value):
            raise AssertionError(f"{group}/{name} was not restored")


def child(task: Mapping[str, Any]) -> None:
    """Does one operation of one contender."""
    directory, operation = Path(task["directory"]), task["operation"]
    state: dict[str, dict[str, Array]] = {}
    random = np.random.Generator(np.random.SFC64(_SEED))
    for group, name, array in tensors(task):
        state.setdefault(group, {})[name] = array
        if operation == "save":
            random.random(out=array, dtype=np.float32)
        else:
            array.fill(7)
    size = sum(array.nbytes for arrays in state.values() for array in arrays.values())

    contender = CONTENDERS[task["contender"]]()
    contender.warm_up(directory)
    contender.hold(state)

    if operation == "save":
        timing = runner.timed(lambda: contender.save(directory), 2 * size)
        durable = runner.timed(lambda: runner.make_durable(directory), 0)
        files = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        runner.answer(
            {
                "seconds": timing.seconds,
                "durable": timing.seconds + durable.seconds,
                "extra": timing.extra / size,
                "size": files,
            }
        )
        return
    if task["cold"]:
        runner.drop_from_cache(directory)
    if operation == "load":
        kept: list[object] = []
        timing = runner.timed(lambda: kept.append(contender.load(directory)), 2 * size)
    else:
        timing = runner.timed(lambda: contender.restore(directory), 2 * size)
        check(task, dict(contender.values()))
    runner.answer({"seconds": timing.seconds, "extra": timing.extra / size})


def measure(place: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds, in one place."""
    names = [name for name in options.only or NAMES if CONTENDERS[name].installed()]
    samples: list[dict[str, Any]] = []
    for number, name in runner.interleaved(options.rounds, names):
        with runner.scratch(runner.places(options)[place]) as directory:
            for operation in ["save", "restore", *["load"] * CONTENDERS[name].loads]:
                task = {
                    "contender": name,
                    "operation": operation,
                    "directory": str(directory),
                    "cold": place == "disk",
                    "width": options.width,
                    "layers": options.layers,
                }
                result = runner.ask(__spec__.name, task, LIMIT_S)
                samples.append({"place": place, "round": number, "contender": name, "operation": operation} | result)
                print(*samples[-1].values(), flush=True)
    return samples


def rows(samples: Sequence[Mapping[str, Any]], place: str, columns: Sequence[tuple[str, str]]) -> list[list[str]]:
    """One row a contender, and one more for each that can restore into new arrays; no row that is empty."""
    found = []
    for name in dict.fromkeys(sample["contender"] for sample in samples):
        kind = CONTENDERS[name]
        for label, restoring in ((name, "restore"), (f"{name}, into new arrays", "load")):
            cells = []
            for operation, quantity in columns:
                where = {"place": place, "operation": operation.replace("restore", restoring)}
                if restoring == "load" and operation == "save":
                    cells += ["-"] * (1 if quantity == "extra" else 2)
                    continue
                values = runner.series(samples, quantity, contender=name, **where)
                raw = runner.series(samples, quantity, contender=RAW, place=place, operation=operation)
                cells.append(values.cell(1, 2))
                if quantity != "extra":
                    cells.append(values.ratio(raw))
            if any(cell != "-" for cell in cells):
                found.append([label, kind.checks, kind.syncs, *cells])
    return found


def title(options: argparse.Namespace) -> str:
    """The beginning of the report."""
    sizes = [4 * int(np.prod(shape)) for shape in shapes(options.width, options.layers).values()]
    return (
        f"## A state of {3 * sum(sizes) / 1e9:.2f} GB in {3 * len(sizes)} tensors\n\n"
        f"Median (least-most) of {options.rounds} rounds, in seconds; x raw is the ratio of medians to the same "
        "bytes written into one file, or read from it, with nothing around. "
        "Extra memory is the peak of resident memory above what was resident before, in states; pages of a file that is "
        "mapped count. All restores but those into new arrays end in memory that already existed."
    )


def text(place: str, samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The table of one place."""
    kind = runner.filesystem(runner.places(options)[place])
    marks = ["", "checksums", "fsync"]
    if place == "memory":
        header = [*marks, "save s", "x raw", "restore s", "x raw", "save extra", "restore extra"]
        columns = [("save", "seconds"), ("restore", "seconds"), ("save", "extra"), ("restore", "extra")]
        heading = f"### In memory ({kind})"
    else:
        header = [*marks, "save s", "x raw", "save until durable s", "x raw", "restore, cold s", "x raw"]
        columns = [("save", "seconds"), ("save", "durable"), ("restore", "seconds")]
        heading = (
            f"### On disk ({kind})\n\nA save is durable once its files and their directory are synced, by the "
            "contender itself or, where it does not, by the benchmark. Cold means that nothing is cached."
        )
    return f"{heading}\n\n{runner.table(header, rows(samples, place, columns))}"


BENCHMARK = tables.Benchmark(runner.PLACES, title, text, settings=("width", "layers"))


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, "throughput", rounds=3, tables=BENCHMARK.tables)
    parser.add_argument("--width", type=int, default=768, help="of the model")
    parser.add_argument("--layers", type=int, default=12, help="of the model")
    parser.add_argument("--only", action="append", choices=NAMES, help="a contender; may be given more than once")
    tables.run(BENCHMARK, parser, child, measure)


if __name__ == "__main__":
    main()
