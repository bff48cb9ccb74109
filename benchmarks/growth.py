"""How saves and restores grow: with the number of variables, and with their bytes.

The first state has 1,000 to 1,000,000 variables of 16 float32 each, in layers of ten. The second has 20 variables, which take
1 MB to 10 GB in all. The files of the first are on tmpfs, and those of the second on a disk: there a save counts until everything
is durable, and a restore reads what the save has left in the memory that the operating system keeps files in.

What the rivals do not do: safetensors and torch have names and arrays only, and no graph of objects. safetensors stores no
checksums, and torch verifies none. Neither of them syncs its files, nor does tf.train.Checkpoint: on the disk the benchmark does
it for them.

A contender is not asked for what would take too long, in proportion to the size before, or for what the memory of the machine does
not hold. The report says so in that cell. It is written after every process. A run that was interrupted, or whose minutes were
over, goes on where it was when it is started again on the same machine, with the same sources and packages; with ``--anew`` it
begins anew.

``python -m benchmarks.growth`` measures. ``python -m benchmarks.growth --draw`` draws the pictures of the docs from what was
measured; it needs matplotlib.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import runner, tables
from benchmarks.contenders import CONTENDERS, RAW, Array, Contender

ONCE: Final = "milepost, read once"
NAMES: Final = {
    "variables": (RAW, "milepost", "safetensors", "torch", "tf.train.Checkpoint"),
    "bytes": (RAW, "milepost", ONCE, "safetensors", "torch", "tf.train.Checkpoint"),
}
"""The contenders by what grows. Reading once is for large values."""
NUMBERS: Final = (1_000, 10_000, 100_000, 1_000_000)
BYTES: Final = (10**6, 10**7, 10**8, 10**9, 10**10)
SMALL: Final = {"variables": 10_000, "bytes": 10**8}
"""All rounds are made up to these sizes."""
OPERATIONS: Final = ("save", "restore")
TOO_LONG_S: Final = 40.0
"""A save or restore that would take longer is not run."""
ENOUGH_S: Final = 15.0
"""Above the small sizes, a contender has another round only until its processes have taken so long."""
LIMIT_S: Final = 240.0
FITTING: Final = 0.85
"""Which part of the machine's memory a process may take, together with its files if they are to be there."""
PICTURES: Final = Path(__file__).parents[1] / "docs" / "images"
_LENGTH: Final = 16
_LARGE: Final = 20
"""Variables of the state that grows in bytes."""
_MOST_TOUCHED: Final = 8 << 30
_LEFT_FREE: Final = 1 << 30
_FIRST_S: Final = 20.0
"""What the first process of a contender may take, of which nothing is known yet."""
_AROUND: Final = 4
"""How much longer a process takes for a save, a restore and what is around them than for the longer of both, at most."""
_MINUTE_S: Final = 60

Samples = Sequence[Mapping[str, Any]]


def held(contender: Contender, growing: str, amount: int, value: int | None) -> Contender:
    """Has a contender hold a state of some size, full of ``value``; with None, each variable is full of its number."""
    count, length = (amount, _LENGTH) if growing == "variables" else (_LARGE, amount // _LARGE // 4)
    state: dict[str, dict[str, Array]] = {}
    for number in range(count):
        array = np.full(length, number if value is None else value, np.float32)
        state.setdefault(f"layer{number // 10}", {})[f"variable{number % 10}"] = array
    contender.hold(state)
    return contender


def child(task: Mapping[str, Any]) -> None:
    """Saves with one contender, and restores into other variables, which are made when those that were saved are gone."""
    directory, growing, amount = Path(task["directory"]), task["growing"], task["amount"]
    kind = CONTENDERS[task["contender"]]
    kind().warm_up(directory)
    most = 2 * amount * (4 * _LENGTH + 1000 if growing == "variables" else 1)

    def saved() -> dict[str, float]:
        contender = held(kind(), growing, amount, None)
        timing = runner.timed(lambda: contender.save(directory), _touchable(most))
        found = {"seconds": timing.seconds, "resident": runner.resident() + timing.extra}
        if growing == "bytes":
            found["seconds"] += runner.timed(lambda: runner.make_durable(directory), 0).seconds
        return found

    def restored() -> dict[str, float]:
        contender = held(kind(), growing, amount, -1)
        timing = runner.timed(lambda: contender.restore(directory), _touchable(most))
        found = {"seconds": timing.seconds, "resident": runner.resident() + timing.extra}
        for number, (name, array) in enumerate(contender.values()):
            if (array != number).any():
                raise AssertionError(f"{name} was not restored")
        return found

    operations = {"save": saved()}
    files = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    gc.collect()
    if task["restore"]:
        operations["restore"] = restored()
    runner.answer({"files": files, "operations": operations})


def _touchable(size: int) -> int:
    """How much of so many bytes can be touched without driving files from memory."""
    return max(0, min(size, _MOST_TOUCHED, runner.memory_of_machine("MemFree") - _LEFT_FREE))


def of_size_before(samples: Samples, growing: str, amount: int, name: str, operation: str) -> Samples:
    """What was measured of an operation of a contender at the largest size below one."""
    smaller = [
        sample
        for sample in samples
        if (sample["growing"], sample["contender"], sample["operation"]) == (growing, name, operation)
        and sample["amount"] < amount
        and "seconds" in sample
    ]
    largest = max((sample["amount"] for sample in smaller), default=0)
    return [sample for sample in smaller if sample["amount"] == largest]


def obstacle(samples: Samples, growing: str, amount: int, name: str, operation: str) -> str | None:
    """Why a contender is not asked for an operation on a state of some size, in proportion to the size before. None if it is."""
    smaller = of_size_before(samples, growing, amount, name, operation)
    if not smaller:
        tried = [sample for sample in samples if (sample["growing"], sample["contender"]) == (growing, name)]
        failed = any(sample["operation"] == operation and sample["amount"] < amount for sample in tried)
        return "not run: failed at the size before" if failed else None
    ratio = amount / smaller[0]["amount"]
    seconds = statistics.median(sample["seconds"] for sample in smaller) * ratio
    if seconds > TOO_LONG_S:
        return f"not run: would take about {seconds:.0f} s"
    least = min(
        sample["resident"] for sample in samples if sample["contender"] == name and "resident" in sample
    )  # with next to no state
    resident = least + (max(sample["resident"] for sample in smaller) - least) * ratio
    on_disk = growing == "bytes" and operation == "save"  # what is written to a disk need not stay in memory
    files = 0 if on_disk else max(sample["files"] for sample in smaller) * ratio
    if resident + files > FITTING * runner.memory_of_machine():
        return f"not run: would need about {(resident + files) / 1e9:.0f} GB of memory{', with its files' if files else ''}"
    return None


def wanted(samples: Samples, growing: str, amount: int, name: str, number: int) -> bool:
    """Whether a contender has this round at a size."""
    here = [
        sample
        for sample in samples
        if (sample["growing"], sample["amount"], sample["contender"]) == (growing, amount, name)
    ]
    if any(sample["round"] == number for sample in here):
        return False  # it was made before the run was interrupted
    spent = sum(sample["process"] for sample in here if sample["operation"] == "save" and "process" in sample)
    return amount <= SMALL[growing] or spent < ENOUGH_S


def expected_s(samples: Samples, growing: str, amount: int, name: str) -> float:
    """How long a process of a contender will take, as far as can be told. Zero if there will be none."""
    if obstacle(samples, growing, amount, name, "save"):
        return 0.0
    same = [
        sample["process"]
        for sample in samples
        if (sample["growing"], sample["amount"], sample["contender"]) == (growing, amount, name) and "process" in sample
    ]
    if same:
        return float(max(same))
    smaller = [
        each
        for operation in OPERATIONS
        if not obstacle(samples, growing, amount, name, operation)
        for each in of_size_before(samples, growing, amount, name, operation)
    ]
    if not smaller:
        return _FIRST_S
    started = min(sample["process"] for sample in smaller)
    return float(started + max(_AROUND * sample["seconds"] * amount / sample["amount"] for sample in smaller))


def one_process(samples: Samples, growing: str, amount: int, name: str, number: int, parent: Path) -> Samples:
    """The samples of one round of a contender: those of one process, or why there is none."""
    which = {"growing": growing, "amount": amount, "contender": name, "round": number}
    why = {operation: obstacle(samples, growing, amount, name, operation) for operation in OPERATIONS}
    if why["save"]:
        return [
            {**which, "operation": "save", "failure": why["save"]},
            {**which, "operation": "restore", "failure": "not run: there is no save"},
        ]
    with runner.scratch(parent) as directory:
        begun = time.monotonic()
        task = {**which, "restore": why["restore"] is None, "directory": str(directory)}
        result = runner.ask(__spec__.name, task, LIMIT_S)
        spent = time.monotonic() - begun
    found = []
    for operation in OPERATIONS:
        told = result.get("operations", {}).get(operation) or {"failure": result.get("failure") or why[operation]}
        found.append({**which, "operation": operation, "process": spent, **told})
        if "files" in result:
            found[-1]["files"] = result["files"]
    return found


def measure(options: argparse.Namespace) -> None:
    """Makes all rounds that are missing, and writes the report after each process."""
    report, facts = tables.Report(BENCHMARK, options), runner.machine()
    same = {growing: report.runs[growing] for growing in report.wanted if goes_on(report, growing, facts)}
    if options.anew or (len(same) == len(report.wanted) and all(run["complete"] for run in same.values())):
        same = {}
    for growing in report.wanted:
        earlier = same.get(growing, {"machine": facts, "complete": False, "samples": []})
        if earlier["samples"]:
            print(
                f"goes on with {growing}, of {earlier['machine']['date']}: there are {len(earlier['samples'])} samples"
            )
        if not earlier["complete"]:
            _measure(growing, options, report, earlier)
    print("\n" + report.text())
    if not all(report.runs[growing]["complete"] for growing in report.wanted):
        print("The minutes are over. What was measured is kept: the same command goes on with the rest.")


def goes_on(report: tables.Report, growing: str, facts: Mapping[str, Any]) -> bool:
    """Whether this run can go on with the one that measured a table."""
    earlier = report.runs.get(growing)
    if earlier is None or earlier["settings"] != report.settings:
        return False
    return all(earlier["machine"].get(what) == value for what, value in facts.items() if what not in {"date", "load"})


def _measure(growing: str, options: argparse.Namespace, report: tables.Report, earlier: Mapping[str, Any]) -> None:
    """Makes the missing rounds of one table, until the minutes are over."""
    facts, samples = earlier["machine"], list(earlier["samples"])
    ends = time.monotonic() + options.minutes * _MINUTE_S
    amounts, parent = {"variables": (options.variables, options.memory), "bytes": (options.bytes, options.disk)}[
        growing
    ]
    names = [name for name in NAMES[growing] if CONTENDERS[name].installed()]
    for amount in sorted(amounts):
        for number, name in runner.interleaved(options.rounds, names):
            if not wanted(samples, growing, amount, name, number):
                continue
            if time.monotonic() + expected_s(samples, growing, amount, name) > ends:
                report.put(growing, facts, samples, complete=False)
                return
            found = one_process(samples, growing, amount, name, number, parent)
            samples += map(dict, found)
            for sample in found:
                print(*sample.values(), flush=True)
            report.put(growing, facts, samples, complete=False)
    report.put(growing, facts, samples, complete=True)


def title(options: argparse.Namespace) -> str:
    """The beginning of the report."""
    return (
        "## Growth\n\n"
        f"Median (least-most) of {options.rounds} rounds, each in a fresh process, which saves and then restores into variables that it "
        f"has made in between. Another number of rounds stands in the cell: above {_amount('variables', SMALL['variables'])} variables "
        f"and {_amount('bytes', SMALL['bytes'])} there are as many as fit into {ENOUGH_S:.0f} s. An operation is not run if it would take "
        f"more than {TOO_LONG_S:.0f} s, or if the process would need more than {FITTING:.0%} of the "
        f"{runner.memory_of_machine() / 1e9:.0f} GB of memory, in proportion to the size before; files on tmpfs, and those that a restore "
        "reads from the page cache, count too. A dash: not measured yet. milepost and "
        "tf.train.Checkpoint save and restore the graph of objects as well; the others have names and arrays only. milepost and "
        "tf.train.Checkpoint verify checksums; the others verify none. milepost alone syncs its files by itself."
    )


def text(growing: str, samples: Samples, options: argparse.Namespace) -> str:
    """The tables of saves and restores by what grows."""
    if growing == "variables":
        heading, scale, digits = (
            f"Microseconds a variable of {_LENGTH} float32, on {runner.filesystem(options.memory)}",
            1e6,
            1,
        )
    else:
        place = f"{_LARGE} variables, on {runner.filesystem(options.disk)}"
        heading, scale, digits = (
            f"Seconds a GB, in {place}: a save until it is durable, a restore from the page cache",
            1e9,
            2,
        )
    amounts = sorted({sample["amount"] for sample in samples})
    parts = [f"### {heading}"]
    for operation in OPERATIONS:
        rows = [
            [name, *(_cell(samples, growing, amount, name, operation, scale, digits, options) for amount in amounts)]
            for name in NAMES[growing]
            if any(sample["contender"] == name for sample in samples)
        ]
        parts.append(runner.table([operation, *(_amount(growing, amount) for amount in amounts)], rows))
    return "\n\n".join(parts)


def _cell(
    samples: Samples,
    growing: str,
    amount: int,
    name: str,
    operation: str,
    scale: float,
    digits: int,
    options: argparse.Namespace,
) -> str:
    where = {"contender": name, "operation": operation, "growing": growing, "amount": amount}
    found = runner.series(samples, "seconds", **where)
    cell, rounds = found.cell(scale / amount, digits), len(found.values)
    if not rounds or rounds == options.rounds:
        return cell
    return f"{cell}, 1 round" if rounds == 1 else f"{cell}, {rounds} rounds"


def _amount(growing: str, amount: int) -> str:
    if growing == "variables":
        return f"{amount:,}"
    return f"{amount / 10**9:g} GB" if amount >= 10**9 else f"{amount / 10**6:g} MB"


BENCHMARK = tables.Benchmark(tuple(NAMES), title, text)

INK, PAPER = "#010101", "#fefefe"
"""Colours that are others where a reader prefers dark pages."""
DARK: Final = f"""<style>@media (prefers-color-scheme: dark) {{
[style*="fill: {INK}"] {{ fill: #e6edf3 !important }}
[style*="stroke: {INK}"] {{ stroke: #e6edf3 !important }}
[style*="fill: {PAPER}"] {{ fill: #0d1117 !important }}
}}</style>
"""
STYLES: Final = {
    RAW: {"color": "#8b949e", "marker": "x", "ls": ":", "lw": 1.5},
    "milepost": {"color": "#2f81f7", "marker": "o", "ls": "-", "lw": 2.5},
    ONCE: {"color": "#2f81f7", "marker": "s", "ls": "--", "lw": 1.5},
    "safetensors": {"color": "#2da44e", "marker": "^", "ls": "-", "lw": 1.5},
    "torch": {"color": "#e16f24", "marker": "v", "ls": "-", "lw": 1.5},
    "tf.train.Checkpoint": {"color": "#bf3989", "marker": "D", "ls": "-", "lw": 1.5},
}


def draw(samples: Samples, growing: str) -> str:
    """A picture, as SVG: the seconds of each contender by size, on axes that are logarithmic both ways, and what was not run."""
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    ticker: Any = importlib.import_module("matplotlib.ticker")
    of_state = [sample for sample in samples if sample["growing"] == growing]
    amounts = sorted({sample["amount"] for sample in of_state})
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color")
    style = {"svg.fonttype": "none", "svg.hashsalt": "milepost", "font.size": 9, **dict.fromkeys(inked, INK)}
    with pyplot.rc_context({**style, "axes.facecolor": PAPER, "font.family": "sans-serif"}):
        figure, axes = pyplot.subplots(1, 2, figsize=(8, 4.2), sharey=True, layout="constrained")
        for operation, plot in zip(OPERATIONS, axes, strict=True):
            for name in NAMES[growing]:
                drawn = _points(of_state, name, operation)
                if drawn:
                    plot.plot(*zip(*drawn, strict=True), **STYLES[name], ms=5, label=name)
            plot.set(
                xscale="log", yscale="log", title=operation, xlabel={"bytes": "size of the state"}.get(growing, growing)
            )
            plot.set_xticks(amounts, [_amount(growing, amount) for amount in amounts])
            plot.xaxis.set_minor_locator(ticker.NullLocator())
            plot.grid(color="#8b949e", alpha=0.3)
        axes[0].set_ylabel("seconds")
        axes[0].yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6, frameon=False, fontsize=8
        )
        figure.supxlabel("\n".join(_not_run(of_state)), fontsize=7, ha="left", x=0.01)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, facecolor=PAPER)
        pyplot.close(figure)
    head, defs, rest = text.getvalue().partition(" <defs>")
    return "\n".join(line.rstrip() for line in (head + DARK + defs + rest).splitlines()) + "\n"


def _points(samples: Samples, name: str, operation: str) -> list[tuple[int, float]]:
    found = []
    for amount in sorted({sample["amount"] for sample in samples}):
        values = runner.series(samples, "seconds", contender=name, operation=operation, amount=amount).values
        if values:
            found.append((amount, statistics.median(values)))
    return found


def _not_run(samples: Samples) -> list[str]:
    """What the lines of a picture lack, each with the reason."""
    lines = {}
    for sample in samples:
        if "failure" in sample:
            amount = _amount(sample["growing"], sample["amount"])
            what = f"{sample['operation']} of {sample['contender']} at {amount}"
            lines[what] = f"{what}: {sample['failure']}"
    return list(lines.values())


def main() -> None:
    """Measures and reports, draws, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, "growth", rounds=3, tables=BENCHMARK.tables)
    parser.add_argument("--variables", type=int, nargs="*", default=NUMBERS, help="numbers of variables")
    parser.add_argument("--bytes", type=int, nargs="*", default=BYTES, help="bytes of the second state")
    parser.add_argument(
        "--minutes", type=float, default=9.5, help="after which no more processes of a table are started"
    )
    parser.add_argument("--anew", action="store_true", help="forget a run that was interrupted")
    parser.add_argument("--draw", action="store_true", help="draw what was measured, and measure nothing")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="the directory to draw into")
    options = runner.begin(parser, child)
    if not options.draw:
        measure(options)
        return
    samples = tables.samples_of(options.name)
    for growing in NAMES:
        (options.pictures / f"growth_{growing}.svg").write_text(draw(samples, growing))


if __name__ == "__main__":
    main()
