"""Uses the forged files of one format in this process, with limits: ``python -m tests.fuzzing.forged.measure FORMAT DIRECTORY``.

For each file and each use of it, a line of JSON says what came of it, how much more memory was resident than before, and the time of the
processor.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import milepost
from milepost.tools.cli import main

SPACE = 1 << 30
"""Addresses that a use may take: an array that is as large as a forged shape says cannot be made."""
SECONDS = 30
"""Of the processor, for all files of a format, before the system ends the process."""


def status(name: str) -> int:
    """Something that the system says of this process, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def uses(path: Path, scratch: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything that is done with a file."""
    name = str(path)

    def command(*words: str) -> str:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return f"{main(words)} {said.getvalue()[:300]}"

    def read() -> None:
        reader = milepost.load_checkpoint(name)
        reader.debug_string()
        for key in reader.keys()[:200]:
            with contextlib.suppress(milepost.MilepostError):
                reader.get_tensor(key)

    yield "list", lambda: milepost.list_variables(name)
    yield "load", lambda: milepost.load(name)
    yield "tensors", read
    yield "restore", lambda: milepost.Checkpoint(a=milepost.Variable(0.0)).read(name).expect_partial()
    yield "convert", lambda: milepost.convert(name, scratch / "converted.npz", partial=True, overwrite=True)
    yield "verify", lambda: command("verify", name)
    yield "show", lambda: command("show", name)
    yield "diff", lambda: command("diff", name, name)
    yield "report", lambda: command("report", name, "-o", str(scratch / "report.html"), "--overwrite")


def outcome(act: Callable[[], object]) -> str:
    """What comes of a use: the class of an error of milepost, or `result`. Any other error begins with `FOREIGN`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", milepost.errors.MilepostWarning)
            found = act()
    except milepost.MilepostError as error:
        return type(error).__name__
    except BaseException as error:
        return f"FOREIGN {type(error).__name__}: {error!s:.300}"
    return f"result {found}" if isinstance(found, str) else "result"


def measured(act: Callable[[], object]) -> tuple[str, int, float]:
    """What comes of a use, the bytes of memory that it took at most, and the seconds of the processor."""
    gc.collect()
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = status("VmRSS")
    begun = time.process_time()
    found = outcome(act)
    return found, status("VmHWM") - before, time.process_time() - begun


def size_of(path: Path) -> int:
    """The bytes of a file, of all files in a directory, or of all that begin with a prefix."""
    inside = [path] if path.is_file() else path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}.*")
    return sum(each.lstat().st_size for each in inside if each.is_file())


def run(name: str, directory: Path, only: str = "") -> None:
    """Makes the files of a format, and uses each."""
    source, _, files = name.partition(".")
    module = importlib.import_module(f"tests.fuzzing.forged.{source}")
    makers = getattr(module, files or "FILES")
    made = {each: maker(directory) for each, maker in makers.items() if only in each}
    # What is imported once does not count.
    warm = getattr(module, f"whole_{files.lower()}", module.whole)(directory / "whole")
    for _, act in uses(warm, directory):
        found = outcome(act)
        assert not found.startswith("FOREIGN"), found
    gc.collect()
    gc.freeze()  # so that later collections take little time
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    for each, path in made.items():
        size = size_of(path)
        for use, act in uses(path, directory):
            found, memory, seconds = measured(act)
            print(json.dumps([each, use, found, memory, round(seconds, 3), size]), flush=True)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
