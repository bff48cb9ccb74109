"""What twenty saves of a LoRA run take, of time and of disk.

The base is GPT-2 (124 million parameters of float32), which is frozen. Each of its matrices has an adapter of rank 8, which trains
under Adam, so 3 in 200 bytes change between two saves. The raw limit of a save that must find out what has changed is to read the
unchanged bytes and to write the others.

A second table has the ways to share a file between two checkpoints, by which incremental saves chose theirs.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks import runner, tables
from benchmarks.contenders import Array, Contender, Milepost, Raw, Safetensors, State, Torch
from benchmarks.throughput import shapes

LIMIT_S = 600.0
RANK = 8
BASE = "base"
SHARED = "ways"
"""The table of ways to share a file."""
_CHUNK = 8 << 20
_FICLONE = 0x40049409
"""The request of Linux that makes a file share the extents of another one; see ``ioctl_ficlone(2)``."""


class RawIncrement(Raw):
    """The limit: everything in the first save, then the base read and the rest written."""

    def hold(self, state: State) -> None:
        super().hold(state)
        self.everything = self.moves
        super().hold({group: arrays for group, arrays in state.items() if group != BASE})
        self.rest = self.moves
        self.size = sum(array.nbytes for array in state[BASE].values()) if BASE in state else 0
        self.first: Path | None = None

    def save(self, directory: Path) -> None:
        self.moves = self.everything if self.first is None else self.rest
        flags = os.O_RDWR | os.O_CREAT
        descriptor = os.open(directory / "raw", flags)
        for _, offset, views in self.moves:
            os.pwritev(descriptor, views, offset)
        os.close(descriptor)
        if self.first is None:
            self.first = directory / "raw"
            return
        buffer = bytearray(_CHUNK)
        descriptor = os.open(self.first, os.O_RDONLY)
        for offset in range(0, self.size, _CHUNK):
            os.preadv(descriptor, [memoryview(buffer)[: self.size - offset]], offset)
        os.close(descriptor)

    def warm_up(self, directory: Path) -> None:
        pass


class MilepostFull(Milepost):
    """`milepost.Checkpoint.save` as it is."""

    incremental: ClassVar[bool] = False

    def save(self, directory: Path) -> None:
        import milepost

        self.checkpoint.save(directory.parent / "ckpt", milepost.CheckpointOptions(incremental=self.incremental))

    def warm_up(self, directory: Path) -> None:
        pass


class MilepostIncremental(MilepostFull):
    """With ``CheckpointOptions(incremental=True)``."""

    incremental = True


RAW = "raw: read what is unchanged, write the rest"
CONTENDERS: dict[str, type[Contender]] = {
    RAW: RawIncrement,
    "milepost, incremental": MilepostIncremental,
    "milepost": MilepostFull,
    "safetensors": Safetensors,
    "torch": Torch,
}


def states(width: int, layers: int) -> dict[str, dict[str, Array]]:
    """The base, its adapters, and the moments of these."""
    random = np.random.Generator(np.random.SFC64(1))
    found: dict[str, dict[str, Array]] = {BASE: {}, "adapters": {}, "first_moment": {}, "second_moment": {}}
    for name, shape in shapes(width, layers).items():
        found[BASE][name] = random.random(shape, np.float32)
        if name.endswith("kernel"):
            for group in ("adapters", "first_moment", "second_moment"):
                found[group][f"{name}_a"] = random.random((shape[0], RANK), np.float32)
                found[group][f"{name}_b"] = random.random((RANK, shape[1]), np.float32)
    return found


def train(contender: Contender) -> None:
    """Changes each value of all but the base, in the memory that the contender saves."""
    trained = [(name, array) for name, array in contender.values() if not name.startswith(f"{BASE}/")]
    before = [array[:1].copy() for _, array in trained]
    for name, array in trained:
        if isinstance(contender, Milepost):
            group, _, member = name.partition("/")
            contender.variables[group][member].assign_add(np.full_like(array, 0.001))
        else:
            array += np.float32(0.001)
    after = [array[:1] for name, array in contender.values() if not name.startswith(f"{BASE}/")]
    if not after or any((old == new).any() for old, new in zip(before, after, strict=True)):
        raise AssertionError("the values that train have not changed")


def allocated(directory: Path) -> int:
    """Bytes of the disk that the files below a directory take, each once, as ``du`` counts."""
    found = {
        status.st_ino: status.st_blocks for path in directory.rglob("*") for status in [path.stat()] if path.is_file()
    }
    return 512 * sum(found.values())


def child(task: Mapping[str, Any]) -> None:
    """All saves of one contender, or all ways to share a file."""
    directory = Path(task["directory"])
    if "ways" in task:
        runner.answer({"seconds": {name: way(directory, task["size"]) for name, way in WAYS.items()}})
        return
    state = states(task["width"], task["layers"])
    size = sum(array.nbytes for arrays in state.values() for array in arrays.values())
    contender = CONTENDERS[task["contender"]]()
    contender.warm_up(directory / "warm")
    contender.hold(state)
    seconds, durable = [], []
    for number in range(task["saves"]):
        train(contender)
        place = directory / "saves" / str(number)
        place.mkdir(parents=True)
        timing = runner.timed(lambda place=place: contender.save(place), 2 * size if not number else 0)  # type: ignore[misc]
        seconds.append(timing.seconds)
        synced = runner.timed(lambda: runner.make_durable(directory / "saves"), 0)
        durable.append(timing.seconds + (0 if contender.syncs == "yes" else synced.seconds))
    runner.answer(
        {
            "first": durable[0],
            "seconds": statistics.median(seconds[1:]),
            "durable": statistics.median(durable[1:]),
            "disk": allocated(directory / "saves") / size,
        }
    )


def _link(source: Path, target: Path) -> None:
    os.link(source, target)


def _reflink(source: Path, target: Path) -> None:
    fcntl = importlib.import_module("fcntl")
    with source.open("rb") as old, target.open("wb") as new:
        fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())


def _copy_within(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        while os.copy_file_range(old.fileno(), new.fileno(), 1 << 30):
            pass


def _write(source: Path, target: Path) -> None:
    block = bytes(_CHUNK)
    with target.open("wb") as new:
        for _ in range(0, source.stat().st_size, _CHUNK):
            new.write(block)


def _timed(way: Callable[[Path, Path], None]) -> Callable[[Path, int], Any]:
    """The seconds until a file of so many bytes exists a second time, durably; or the name of the error."""

    def run(directory: Path, size: int) -> Any:
        source, target = directory / "source", directory / "target"
        if not source.exists():
            with source.open("wb") as file:
                for _ in range(0, size, _CHUNK):
                    file.write(os.urandom(_CHUNK))
            runner.make_durable(directory)
        begun = time.perf_counter()
        try:
            way(source, target)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        finally:
            runner.make_durable(directory)
            seconds = time.perf_counter() - begun
            target.unlink(missing_ok=True)
        return seconds

    return run


WAYS = {
    "hard link": _timed(_link),
    "shared extents (FICLONE)": _timed(_reflink),
    "copy_file_range": _timed(_copy_within),
    "written again": _timed(_write),
}


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rounds of one table."""
    return _measure_ways(options) if name == SHARED else _measure_saves(name, options)


def _measure_saves(place: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    names = [name for name, kind in CONTENDERS.items() if kind.installed()]
    samples: list[dict[str, Any]] = []
    for number, name in runner.interleaved(options.rounds, names):
        with runner.scratch(runner.places(options)[place]) as directory:
            task = {
                "contender": name,
                "directory": str(directory),
                "width": options.width,
                "layers": options.layers,
                "saves": options.saves,
            }
            samples.append(
                {"place": place, "round": number, "contender": name} | runner.ask(__spec__.name, task, LIMIT_S)
            )
            print(*samples[-1].values(), flush=True)
    return samples


def _measure_ways(options: argparse.Namespace) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    size = 4 * sum(int(np.prod(shape)) for shape in shapes(options.width, options.layers).values())
    for number, (place, parent) in itertools.product(range(options.rounds), runner.places(options).items()):
        with runner.scratch(parent) as directory:
            found = runner.ask(__spec__.name, {"ways": True, "directory": str(directory), "size": size}, LIMIT_S)
        for way, seconds in found.pop("seconds", {}).items():
            told = {"failure": seconds} if isinstance(seconds, str) else {"way_seconds": seconds}
            samples.append({"place": place, "round": number, "way": way} | told)
            print(*samples[-1].values(), flush=True)
    return samples


def title(options: argparse.Namespace) -> str:
    """The beginning of the report."""
    state = states(options.width, options.layers)
    sizes = {group: sum(array.nbytes for array in arrays.values()) for group, arrays in state.items()}
    total = sum(sizes.values())
    return (
        f"## {options.saves} saves of a LoRA run of {total / 1e9:.2f} GB, of which {(total - sizes[BASE]) / 1e6:.1f} MB train\n\n"
        f"Median (least-most) of {options.rounds} rounds, in seconds. Each save has a path of its own. Later saves: the median of all "
        "but the first. A save is durable once its files and their directory are synced, by the contender itself or, where it does "
        "not, by the benchmark. Disk: what all saves take together, in states. x raw is the ratio of medians."
    )


def text(name: str, samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    """One table."""
    return _text_of_ways(samples, options) if name == SHARED else _text_of_saves(name, samples, options)


def _text_of_saves(place: str, samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    rows = []
    for name in dict.fromkeys(sample["contender"] for sample in samples):
        cells = [name, CONTENDERS[name].checks, CONTENDERS[name].syncs]
        for quantity in ("first", "seconds", "durable"):
            values = runner.series(samples, quantity, place=place, contender=name)
            raw = runner.series(samples, quantity, place=place, contender=RAW)
            cells += [values.cell(1, 3), values.ratio(raw)]
        rows.append([*cells, runner.series(samples, "disk", place=place, contender=name).cell(1, 2)])
    header = [
        "",
        "checksums",
        "fsync",
        "first save, durable s",
        "x raw",
        "later saves s",
        "x raw",
        "durable s",
        "x raw",
        "disk",
    ]
    kind = runner.filesystem(runner.places(options)[place])
    return f"### {'In memory' if place == 'memory' else 'On disk'} ({kind})\n\n{runner.table(header, rows)}"


def _text_of_ways(samples: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> str:
    places = runner.places(options)
    size = 4 * sum(int(np.prod(shape)) for shape in shapes(options.width, options.layers).values())
    rows = [
        [way, *(runner.series(samples, "way_seconds", place=place, way=way).cell(1, 4) for place in places)]
        for way in WAYS
    ]
    header = ["", *(f"{runner.filesystem(parent)} s" for parent in places.values())]
    return f"## Ways to have a file of {size / 1e9:.2f} GB a second time, durably\n\n{runner.table(header, rows)}"


BENCHMARK = tables.Benchmark((*runner.PLACES, SHARED), title, text, settings=("width", "layers", "saves"))


def main() -> None:
    """Measures and reports, or, started by itself, does one task."""
    parser = runner.arguments(__doc__, "incremental", rounds=3, tables=BENCHMARK.tables)
    parser.add_argument("--width", type=int, default=768, help="of the model")
    parser.add_argument("--layers", type=int, default=12, help="of the model")
    parser.add_argument("--saves", type=int, default=20)
    tables.run(BENCHMARK, parser, child, measure)


if __name__ == "__main__":
    main()
