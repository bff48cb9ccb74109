"""How saves and restores grow: with the number of variables, and with their bytes.

The first state has 1,000 to 1,000,000 variables of 16 float32 each, in layers of ten. The second has 20 variables, which take
1 MB to 10 GB in all. The files of the first are on tmpfs, and those of the second on a disk: there a save counts until everything
is durable, and a restore reads what the save has left in the memory that the operating system keeps files in.

``python -m benchmarks.growth`` measures. ``python -m benchmarks.growth --draw`` draws the pictures of the docs from what was
measured; it needs matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import runner
from benchmarks.contenders import CONTENDERS, RAW, Array

NAMES: Final = (RAW, "milepost", "milepost, read once", "safetensors", "torch", "tf.train.Checkpoint")
NUMBERS: Final = (1_000, 10_000, 100_000, 1_000_000)
BYTES: Final = (10**6, 10**7, 10**8, 10**9, 10**10)
OPERATIONS: Final = ("save", "restore")
LIMIT_S: Final = 240.0
PICTURES: Final = Path(__file__).parents[1] / "docs" / "images"
_LENGTH: Final = 16
_LARGE: Final = 20
"""Variables of the state that grows in bytes."""


def child(task: Mapping[str, Any]) -> None:
    """Does one operation of one contender."""
    directory, operation, growing, amount = Path(task["directory"]), task["operation"], task["growing"], task["amount"]
    if growing == "variables":
        count, length = amount, _LENGTH
    else:
        count, length = _LARGE, amount // _LARGE // 4
    state: dict[str, dict[str, Array]] = {}
    for number in range(count):
        value = np.full(length, number if operation == "save" else -1, np.float32)
        state.setdefault(f"layer{number // 10}", {})[f"variable{number % 10}"] = value

    contender = CONTENDERS[task["contender"]]()
    contender.warm_up(directory)
    contender.hold(state)
    spare = min(2 * count * (4 * length + 1000), 8 << 30)
    if operation == "save":
        timing = runner.timed(lambda: contender.save(directory), spare)
        durable = runner.timed(lambda: runner.make_durable(directory), 0).seconds if growing == "bytes" else 0.0
        runner.answer({"seconds": timing.seconds + durable, "extra": timing.extra})
        return
    timing = runner.timed(lambda: contender.restore(directory), spare)
    live = dict(contender.values())
    for number in range(count):
        if (live[f"layer{number // 10}/variable{number % 10}"] != number).any():
            raise AssertionError(f"variable {number} was not restored")
    runner.answer({"seconds": timing.seconds, "extra": timing.extra})


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds. Who failed or was too slow once is not asked for more."""
    names = [name for name in NAMES if CONTENDERS[name].installed()]
    samples: list[dict[str, Any]] = []
    for growing, amounts, parent in (
        ("variables", options.variables, options.memory),
        ("bytes", options.bytes, options.disk),
    ):
        beaten: set[str] = set()
        for amount in amounts:
            for number, name in runner.interleaved(options.rounds, names):
                if name in beaten or (growing == "variables" and name == "milepost, read once"):
                    continue
                with runner.scratch(parent) as directory:
                    for operation in OPERATIONS:
                        task = {"contender": name, "operation": operation, "growing": growing, "amount": amount}
                        result = runner.ask(__spec__.name, {**task, "directory": str(directory)}, LIMIT_S)
                        samples.append({**task, "round": number, **result})
                        print(*samples[-1].values(), flush=True)
                        if "failure" in result:
                            beaten.add(name)
                            break
    return samples


def text(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """The report."""
    parts = [
        "## Growth",
        f"Median (least-most) of {options.rounds} rounds, each in a fresh process. A dash: not tried after a failure, or after a process "
        f"that took more than {LIMIT_S:.0f} s, with making the variables.",
    ]
    for growing, title, scale, digits in (
        ("variables", f"Microseconds a variable of {_LENGTH} float32, on {runner.filesystem(options.memory)}", 1e6, 1),
        ("bytes", f"Seconds a GB, in {_LARGE} variables, on {runner.filesystem(options.disk)}", 1e9, 2),
    ):
        amounts = sorted({sample["amount"] for sample in samples if sample["growing"] == growing})
        rows = []
        for name in dict.fromkeys(sample["contender"] for sample in samples if sample["growing"] == growing):
            cells = [name]
            for operation in OPERATIONS:
                for amount in amounts:
                    where = {"contender": name, "operation": operation, "growing": growing, "amount": amount}
                    found = runner.series(samples, "seconds", **where)
                    cells.append(found.cell(scale / amount, digits))
            rows.append(cells)
        header = ["", *(f"{operation} {_amount(growing, amount)}" for operation in OPERATIONS for amount in amounts)]
        parts += [f"### {title}", runner.table(header, rows)]
    return "\n\n".join(parts)


def _amount(growing: str, amount: int) -> str:
    if growing == "variables":
        return f"{amount:,}"
    return f"{amount // 10**9} GB" if amount >= 10**9 else f"{amount // 10**6} MB"


def draw() -> None:
    """Draws what was measured last, on axes that are logarithmic both ways."""
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    samples = json.loads((runner.RESULTS / "growth.json").read_text())["samples"]
    style = {"svg.fonttype": "none", "svg.hashsalt": "milepost", "font.size": 9}
    for growing, label in (("variables", "variables"), ("bytes", "bytes")):
        with pyplot.rc_context(style):
            figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
            for operation, plot in zip(OPERATIONS, axes, strict=True):
                for name in NAMES:
                    points = _points(samples, name, operation, growing)
                    if points:
                        wide = 2.5 if name.startswith("milepost") else 1.2
                        dashes = ":" if name == RAW else "-"
                        plot.plot(*zip(*points, strict=True), dashes, marker="o", ms=3, lw=wide, label=name)
                plot.set(xscale="log", yscale="log", title=operation, xlabel=label)
                plot.grid(alpha=0.3)
            axes[0].set_ylabel("seconds")
            axes[0].legend(frameon=False, fontsize=8)
            figure.savefig(PICTURES / f"growth_{growing}.svg", metadata={"Date": None}, facecolor="white")
            pyplot.close(figure)


def _points(samples: Sequence[Mapping[str, Any]], name: str, operation: str, growing: str) -> list[tuple[int, float]]:
    points = []
    for amount in sorted({sample["amount"] for sample in samples if sample["growing"] == growing}):
        where = {"contender": name, "operation": operation, "growing": growing, "amount": amount}
        found = runner.series(samples, "seconds", **where)
        if found.values:
            points.append((amount, statistics.median(found.values)))
    return points


def main() -> None:
    """Measures and reports, draws, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, rounds=3)
    parser.add_argument("--variables", type=int, nargs="*", default=NUMBERS, help="numbers of variables")
    parser.add_argument("--bytes", type=int, nargs="*", default=BYTES, help="bytes of the second state")
    parser.add_argument("--disk", type=Path, default=Path(".cache/benchmarks"), help="a directory on a disk")
    parser.add_argument("--draw", action="store_true", help="draw what was measured, and measure nothing")
    options = runner.begin(parser, child)
    if options.draw:
        draw()
        return
    options.disk.mkdir(parents=True, exist_ok=True)
    facts = runner.machine()
    samples = measure(options)
    runner.report("growth", text(samples, options), facts, samples)


if __name__ == "__main__":
    main()
