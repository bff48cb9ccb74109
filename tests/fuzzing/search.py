"""Looks for inputs that break what `outcome` says, guided by coverage (atheris, which is libFuzzer for Python).

Run as a program, it searches for one target, as `tests.fuzzing` starts it: TARGET FOLDER, then arguments of libFuzzer. An input that
breaks something is stored under FOLDER/findings with its traceback, once for each place that raised, and the search goes on.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import resource
import sys
import time
import traceback
from pathlib import Path

import atheris

JUMP = 256 << 10
"""KiB of resident memory that one input may add to the most that there ever was."""
_EACH = 100
PACKAGES = (
    "foreign",
    "bundle",
    "table",
    "coding",
    "graph",
    "plain_state",
    "engine",
    "checkpoint",
    "deferred",
    "manager",
    "tensor",
)


def _import_all() -> None:
    """Imports what may be met, so that its coverage is followed."""
    for package in PACKAGES:
        above = importlib.import_module(f"milepost.{package}")
        for module in pkgutil.walk_packages(above.__path__, f"milepost.{package}."):
            importlib.import_module(module.name)


def main() -> None:
    """Searches until libFuzzer ends it."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    with atheris.instrument_imports(include=["milepost"]):
        _import_all()
        from tests.fuzzing.corpus import name_of
        from tests.fuzzing.outcome import TooMuchError, check
        from tests.fuzzing.targets import TARGETS
    findings = folder / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    read = TARGETS[name].read
    seen: set[str] = set()
    tried = 0
    counter = folder / f"tried-{os.getpid()}"

    def one(data: bytes) -> None:
        nonlocal tried
        tried += 1
        if tried % _EACH == 0:
            counter.write_text(f"{tried} {time.process_time() - begun:.0f}")
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            check(read, data)
            added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most
            if added > JUMP:
                raise TooMuchError(f"{added >> 10} MiB of memory for {len(data)} bytes")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} {os.path.basename(last.filename)}:{last.name}:{last.lineno}"
            if place not in seen:
                seen.add(place)
                path = findings / name_of(data)
                path.write_bytes(data)
                path.with_suffix(".txt").write_text(f"{place}\n" + "".join(traceback.format_exception(error)))

    begun = time.process_time()
    atheris.Setup([sys.argv[0], *sys.argv[3:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
