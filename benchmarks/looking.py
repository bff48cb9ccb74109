"""How fast the command looks into files: into very many tensors, and into many bytes.

The first state has 100,000 tensors of 4 x 4 float32; in its second version every tenth has other values. It is a checkpoint of milepost, and
each kind of file that others write. Beside `milepost show` and `milepost diff` stands what it takes the library of that format to print the name,
the element type and the shape of each tensor. No library has a command, or compares two files. numpy.load reads the values for it,
and torch.load reads the pickled data and leaves the values in the file.

The second state has 1.5 GB in 24 tensors, in a checkpoint of milepost. Commands that read all values are compared with reading the same bytes alone.

Each measurement is a process of its own, from its start to its end. Its memory is the most that was resident. The files are on tmpfs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import runner, tables

COUNT: Final = 100_000
LARGE: Final = 24, 16 << 20
"""How many tensors of float32 the second state has, and how many elements each."""
LIMIT_S: Final = 300.0
_IN_SHARDS: Final = 20
_OWN: Final = "milepost"
_FORMATS: Final = {
    _OWN: "own-1",
    "safetensors": "a.safetensors",
    "safetensors in 20 files": "a",
    "NumPy (.npz)": "a.npz",
    "PyTorch (.pt)": "a.pt",
}
"""The first file of each format; the name of the second has a 2 for the 1, or a b for the a."""
_LISTING: Final = {
    _OWN: "import tensorflow as tf\nfor name, shape in tf.train.list_variables(PATH): print(name, shape)",
    "safetensors": (
        "from safetensors import safe_open\nwith safe_open(PATH, 'np') as file:\n"
        "  for name in file.keys(): part = file.get_slice(name); print(name, part.get_dtype(), part.get_shape())"
    ),
    "safetensors in 20 files": (
        "from pathlib import Path\nfrom safetensors import safe_open\n"
        "for path in sorted(Path(PATH).glob('*.safetensors')):\n with safe_open(path, 'np') as file:\n"
        "  for name in file.keys(): part = file.get_slice(name); print(name, part.get_dtype(), part.get_shape())"
    ),
    "NumPy (.npz)": (
        "import numpy\nwith numpy.load(PATH) as file:\n"
        "  for name in file.files: array = file[name]; print(name, array.dtype, array.shape)"
    ),
    "PyTorch (.pt)": (
        "import torch\n"
        "for name, each in torch.load(PATH, mmap=True).items(): print(name, each.dtype, tuple(each.shape))"
    ),
}
"""What lists a file of each format without milepost. TensorFlow lists checkpoints of milepost."""
_RAW: Final = "raw: read all bytes, 16 MiB at a time"
_READING: Final = {
    _RAW: "buffer = bytearray(16 << 20)\nwith open(PATH, 'rb', buffering=0) as file:\n  while file.readinto(buffer): pass",
    "raw: read all bytes into memory": "with open(PATH, 'rb') as file: file.read()",
}
_LARGE_COMMANDS: Final = {
    "milepost ls": ("ls", "{directory}"),
    "milepost show, list": ("show", "{first}"),
    "milepost show, one tensor": ("show", "{first}", "w1"),
    "milepost verify": ("verify", "{first}"),
    "milepost report": ("report", "{first}", "-o", "{directory}/report.html", "--overwrite"),
    "milepost diff": ("diff", "{first}", "{second}"),
}

Samples = Sequence[Mapping[str, Any]]


def states() -> Iterator[tuple[str, dict[str, np.ndarray[Any, Any]]]]:
    """The two versions of very many tensors, each with the letter of its files."""
    values = np.random.default_rng(0).standard_normal((COUNT, 4, 4)).astype(np.float32)
    names = [f"layers.{n // 1000}.block{n // 10 % 100}.kernel{n}" for n in range(COUNT)]
    yield "a", dict(zip(names, values, strict=True))
    values = values.copy()
    values[::10] += 1
    yield "b", dict(zip(names, values, strict=True))


def write_many(directory: Path) -> None:
    """Writes the first state in every format."""
    import torch
    from safetensors.numpy import save_file

    import milepost

    for letter, state in states():
        by_path = {name.replace(".", "/"): array for name, array in state.items()}
        milepost.save(directory / f"own-{' ab'.index(letter)}", state)
        save_file(state, directory / f"{letter}.safetensors")
        np.savez(directory / f"{letter}.npz", **by_path)  # type: ignore[arg-type]  # of its own options
        torch.save({name: torch.from_numpy(array.copy()) for name, array in state.items()}, directory / f"{letter}.pt")
        folder = directory / letter
        folder.mkdir()
        names = [*state]
        index: dict[str, str] = {}
        for number in range(_IN_SHARDS):
            file = f"model-{number + 1:05}-of-{_IN_SHARDS:05}.safetensors"
            part = names[number * COUNT // _IN_SHARDS : (number + 1) * COUNT // _IN_SHARDS]
            save_file({name: state[name] for name in part}, folder / file, metadata={"format": "pt"})
            index |= dict.fromkeys(part, file)
        text = json.dumps({"metadata": {"total_size": COUNT * 64}, "weight_map": index}, indent=2)
        (folder / "model.safetensors.index.json").write_text(text)


def write_large(directory: Path) -> None:
    """Writes two checkpoints of the second state."""
    import milepost

    count, length = LARGE
    for number in (1, 2):
        rng = np.random.default_rng(number)
        state = {f"w{n}": rng.standard_normal(length, np.float32) for n in range(count)}
        milepost.save(directory / f"own-{number}", state)


def measured(command: Sequence[str]) -> dict[str, Any]:
    """Runs a command, and answers how long it took and how much memory it had, or why it failed."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: they differ
        return {"failure": (told.strip().splitlines() or [f"exit status {process.returncode}"])[-1][:200]}
    return {"seconds": seconds, "memory": usage.ru_maxrss * 1024}


def _second(path: str) -> str:
    return path.replace("own-1", "own-2").replace("/a", "/b")


def commands(table: str, directory: Path) -> dict[tuple[str, str], Sequence[str]]:
    """The commands of a table, by row and column."""
    python, milepost = sys.executable, (sys.executable, "-m", "milepost")
    if table == "many":
        found: dict[tuple[str, str], Sequence[str]] = {}
        for name, file in _FORMATS.items():
            path = f"{directory}/{file}"
            found[name, "library"] = (python, "-c", f"PATH = {path!r}\n{_LISTING[name]}")
            found[name, "show"] = (*milepost, "show", path)
            found[name, "diff"] = (*milepost, "diff", path, _second(path))
        return found
    first = f"{directory}/own-1"
    places = {"directory": str(directory), "first": first, "second": _second(first)}
    data = next(str(path) for path in sorted(directory.iterdir()) if path.name.startswith("own-1.data"))
    raw = {(name, "run"): (python, "-c", f"PATH = {data!r}\n{text}") for name, text in _READING.items()}
    return raw | {
        (name, "run"): (*milepost, *(word.format(**places) for word in words))
        for name, words in _LARGE_COMMANDS.items()
    }


def child(task: Mapping[str, Any]) -> None:
    """Writes the files of a table, which takes memory that the measurements must not find warm."""
    {"many": write_many, "large": write_large}[task["table"]](Path(task["directory"]))
    runner.answer({})


def measure(table: str, options: argparse.Namespace) -> Samples:
    """All rounds of one table."""
    samples: list[dict[str, Any]] = []
    with runner.scratch(options.memory) as directory:
        written = runner.ask(__spec__.name, {"table": table, "directory": str(directory)}, LIMIT_S)
        if "failure" in written:
            raise SystemExit(written["failure"])
        wanted = commands(table, directory)
        for command in wanted.values():
            measured(command)  # so that all modules are compiled
        names = [json.dumps(each) for each in wanted]
        for number, name in runner.interleaved(options.rounds, names):
            row, column = json.loads(name)
            samples.append({"round": number, "row": row, "column": column} | measured(wanted[row, column]))
            print(table, *samples[-1].values(), flush=True)
    return samples


def _cells(samples: Samples, row: str, column: str) -> list[str]:
    found = runner.series(samples, "seconds", row=row, column=column)
    memory = runner.series(samples, "memory", row=row, column=column)
    return [found.cell(1, 2), memory.cell(1 / (1 << 20), 0).partition(" ")[0]]


def _text(table: str, samples: Samples, options: argparse.Namespace) -> str:
    if table == "many":
        rows = [
            [name, *(cell for column in ("show", "diff", "library") for cell in _cells(samples, name, column))]
            for name in _FORMATS
        ]
        header = ["", "show s", "MiB", "diff s", "MiB", "listed by its library s", "MiB"]
        heading = f"### {COUNT:,} tensors, {runner.filesystem(options.memory)}"
        return f"{heading}\n\n{runner.table(header, rows)}"
    raw = runner.series(samples, "seconds", row=_RAW, column="run")
    rows = []
    for name in (*_READING, *_LARGE_COMMANDS):
        seconds = runner.series(samples, "seconds", row=name, column="run")
        rows.append([name, *_cells(samples, name, "run"), seconds.ratio(raw)])
    count, length = LARGE
    heading = f"### {count * length * 4 / 1e9:.2f} GB in {count} tensors, {runner.filesystem(options.memory)}"
    return f"{heading}\n\n{runner.table(['', 's', 'MiB', 'x raw'], rows)}"


def _title(options: argparse.Namespace) -> str:
    return (
        "## Looking into files\n\n"
        f"Median (least-most) of {options.rounds} rounds of a whole process, from its start to its end, with the start of Python; the most memory "
        "that was resident, in MiB (median). `show` prints all names, element types and shapes, and `diff` compares all values, of which a tenth "
        "differ. The libraries print the same list as `show`. TensorFlow lists the checkpoint of milepost. None of them compares two files."
    )


BENCHMARK: Final = tables.Benchmark(("many", "large"), _title, _text)


def main() -> None:
    """Measures and reports, or, started by itself, writes files."""
    tables.run(BENCHMARK, runner.arguments(__doc__, "looking", rounds=5, tables=BENCHMARK.tables), child, measure)


if __name__ == "__main__":
    main()
