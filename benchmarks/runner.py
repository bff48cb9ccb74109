"""Runs contenders fairly and reports what came out, whoever wins.

Every measurement is a process of its own; rounds are interleaved, each starting with another contender, so that a slow
minute of the machine hits all of them. Reported are the median of the rounds and their extremes, and ratios of medians
to the raw limit: the same bytes written or read with nothing around them.

Memory is what misleads most on a shared machine: free pages go back to the host, and the first touch after that is many
times slower. So before a timed section a process touches as much memory as the section can need and frees it at once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "milepost",
    "numpy",
    "tensorflow",
    "tensorflow-cpu",
    "torch",
    "safetensors",
    "h5py",
    "orbax-checkpoint",
    "jax",
    "flax",
    "optax",
    "google-crc32c",
    "crc32c",
    "awscrt",
    "protobuf",
)
MEASURED: Final = "Measured on"
"""How the line begins that says what a report was measured on."""
_RESULT = "result: "


@dataclass(frozen=True)
class Timing:
    """What one timed section cost.

    Attributes:
        seconds: Until the call returned.
        extra: The most bytes resident at any moment of it, above what was resident before.
    """

    seconds: float
    extra: int


def touch_memory(size: int) -> None:
    """Makes sure that the next ``size`` bytes that anyone allocates are backed by memory of the host."""
    block = mmap.mmap(-1, max(size, mmap.PAGESIZE))
    np.frombuffer(block, np.uint8)[:: mmap.PAGESIZE] = 1
    block.close()


def _bytes_in(file: str, field: str) -> int:
    return next(int(line.split()[1]) * 1024 for line in Path(file).read_text().splitlines() if line.startswith(field))


def resident(field: str = "VmRSS") -> int:
    """Bytes of memory that this process has; as ``VmHWM``, the most it had since `timed` has begun."""
    return _bytes_in("/proc/self/status", field)


def memory_of_machine(field: str = "MemTotal") -> int:
    """Bytes of memory of the machine; as ``MemFree``, those that nothing uses, not even for files."""
    return _bytes_in("/proc/meminfo", field)


def timed(section: Callable[[], object], memory: int) -> Timing:
    """Runs a section once.

    Args:
        section: What to time.
        memory: Bytes to touch and free before, see `touch_memory`.
    """
    touch_memory(memory)
    # Resets the peak, VmHWM, to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident()
    start = time.perf_counter()
    section()
    seconds = time.perf_counter() - start
    return Timing(seconds, max(0, resident("VmHWM") - before))


def make_durable(directory: Path) -> None:
    """Syncs every file below a directory, and the directories."""
    for folder, _, files in os.walk(directory, topdown=False):
        for name in [*files, "."]:
            descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def drop_from_cache(directory: Path) -> None:
    """Has the next read of the files below a directory come from the disk."""
    make_durable(directory)
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def answer(result: Mapping[str, Any]) -> None:
    """Hands a child's result to its parent."""
    print(_RESULT + json.dumps(result), flush=True)


def ask(module: str, task: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Runs ``module`` in a process of its own with a task, which it answers by `answer`.

    Returns:
        The child's result, or ``{"failure": why}``.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu", **os.environ}
    command = [sys.executable, "-m", module, "--task", json.dumps(task)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"failure": f"> {limit:.0f} s"}
    for line in done.stdout.splitlines():
        if line.startswith(_RESULT):
            result: dict[str, Any] = json.loads(line.removeprefix(_RESULT))
            return result
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return {"failure": last[:200]}


def interleaved(rounds: int, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Every name once a round, each round starting with another."""
    for number in range(rounds):
        start = number % len(names)
        for name in [*names[start:], *names[:start]]:
            yield number, name


def arguments(text: str | None, name: str, rounds: int, tables: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The arguments that all benchmarks take.

    Args:
        text: What the benchmark says of itself.
        name: The name of its files in `RESULTS`, where nothing else is asked for.
        rounds: How many rounds there are, where nothing else is asked for.
        tables: The names of its tables, if it has several, of which any can be measured by itself.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a directory on tmpfs")
    parser.add_argument("--disk", type=Path, default=Path(".cache/benchmarks"), help="a directory on a disk")
    parser.add_argument("--name", default=name, help="of the files in benchmarks/results")
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    if tables:
        only = "measure only this table, and keep what was measured of the others; may be given more than once"
        parser.add_argument("--table", action="append", choices=tables, help=only)
    return parser


Child = Callable[[Mapping[str, Any]], None]
"""Does one task in a process that `ask` started, and answers it."""


def begin(parser: argparse.ArgumentParser, child: Child | None) -> argparse.Namespace:
    """The arguments given; in a process that `ask` started, does its task with ``child``, and ends."""
    options = parser.parse_args()
    if options.task and child is not None:
        child(options.task)
        raise SystemExit
    options.disk.mkdir(parents=True, exist_ok=True)
    return options


def run(
    parser: argparse.ArgumentParser,
    child: Child | None,
    measure: Callable[[argparse.Namespace], list[dict[str, Any]]],
    text: Callable[[Sequence[Mapping[str, Any]], argparse.Namespace], str],
) -> None:
    """A whole benchmark whose tables are measured together; `benchmarks.tables` has those whose tables may be measured one by one.

    In a process that `ask` started, does one task instead.

    Args:
        parser: From `arguments`, with those of the benchmark.
        child: Does one task; None if the benchmark starts no processes.
        measure: Asks for all tasks of all rounds; returns the samples.
        text: The report on the samples.
    """
    options = begin(parser, child)
    facts = machine()
    samples = measure(options)
    report(options.name, text(samples, options), facts, samples)


PLACES: Final = ("memory", "disk")
"""The tables of the benchmarks that measure in both."""


def places(options: argparse.Namespace) -> dict[str, Path]:
    """Their directories."""
    return {place: getattr(options, place) for place in PLACES}


@contextlib.contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A directory for one measurement's files, gone afterwards."""
    directory = parent / f"milepost-benchmark-{os.getpid()}"
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def filesystem(directory: Path) -> str:
    """The type of the file system that holds a directory, for example ``"ext4"``."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        if os.path.commonpath([point, directory.resolve()]) == point and len(point) >= len(best):
            best, kind = point, found
    return kind


@dataclass
class Series:
    """One contender's values of one quantity over the rounds."""

    values: list[float]
    failure: str | None = None

    def cell(self, scale: float, digits: int) -> str:
        """Median and extremes as ``0.68 (0.66-0.83)``, or why there is none."""
        if not self.values:
            return self.failure or "-"
        numbers = [statistics.median(self.values), min(self.values), max(self.values)]
        middle, low, high = (f"{number * scale:.{digits}f}" for number in numbers)
        return f"{middle} ({low}-{high})" if len(self.values) > 1 else middle

    def ratio(self, to: Series) -> str:
        """Ratio of the medians."""
        if not self.values or not to.values:
            return "-"
        return f"{statistics.median(self.values) / statistics.median(to.values):.2f}"


def series(samples: Sequence[Mapping[str, Any]], quantity: str, **where: Any) -> Series:
    """Collects a quantity from the samples that match."""
    matching = [sample for sample in samples if all(sample.get(key) == value for key, value in where.items())]
    values = [float(sample[quantity]) for sample in matching if quantity in sample]
    return Series(values, next((str(sample["failure"]) for sample in matching if "failure" in sample), None))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first align right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def _commit() -> str:
    """The commit of the sources, with ``+`` where they differ from it. Results are no sources."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":(exclude){RESULTS.name}")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + "+" * bool(changed)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2].strip() for line in cpuinfo.splitlines() if "model name" in line), "unknown")
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        **_gpu(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _commit(),
        "packages": versions,
        "date": time.strftime("%Y-%m-%d"),
        "load": os.getloadavg()[0],
    }


def _gpu() -> dict[str, str]:
    """The name of the first GPU of NVIDIA, if the machine has one."""
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return {"gpu": found[0].strip()} if found else {}


def report(name: str, text: str, facts: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> None:
    """Prints a report with what it was measured on, and writes it, and all samples, into `RESULTS`."""
    text = f"{text}\n\n{measured_on(facts)}\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": facts, "samples": samples}, indent=1) + "\n")
    print("\n" + text)


def measured_on(facts: Mapping[str, Any]) -> str:
    """What `machine` has found, as a line of a report."""
    packages = ", ".join(f"{package} {version}" for package, version in facts["packages"].items())
    gpu = f", {facts['gpu']}" if "gpu" in facts else ""
    return (
        f"{MEASURED} {facts['date']}: {facts['cores']} cores ({facts['cpu']}){gpu}, Linux {facts['kernel']}, "
        f"Python {facts['python']}, {packages}; sources at {facts['commit']}. Load of the machine before the first round: {facts['load']:.1f}."
    )
