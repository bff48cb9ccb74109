"""Tries each library that is installed, or those that are named: `python -m benchmarks.libraries [LIBRARY ...]`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.libraries import catalogue, table, verdict

_ROOT = Path(__file__).parents[2]
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
_MINUTES = 20


def _child(**task: Any) -> int:
    paths = [os.environ.get("PYTHONPATH", ""), str(_ROOT)]
    environment = {**os.environ, **_QUIET, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "benchmarks.libraries.child", json.dumps(task)]
    try:
        return subprocess.run(command, env=environment, check=False, timeout=_MINUTES * 60).returncode
    except subprocess.TimeoutExpired:
        return -1


def _names(library: str) -> list[str]:
    with tempfile.NamedTemporaryFile("r") as answer:
        if _child(do="names", library=library, answer=answer.name, folder=""):
            raise SystemExit(f"{library} cannot be imported")
        found: list[str] = json.load(answer)
    return found


def _tried(library: str, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was found of each object: some of them in one process, and then in another."""
    with tempfile.TemporaryDirectory() as directory:
        for do in ("save", "resume"):
            ended = _child(do=do, library=library, folder=directory, names=names)
            if ended:
                print(f"{library}: a process to {do} ended with {ended}", file=sys.stderr, flush=True)
        for number, name in enumerate(names):
            yield (
                name,
                verdict.judged(*(_read(Path(directory, str(number), f"{do}.json")) for do in ("saved", "resumed"))),
            )


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"untried": "the process ended before"}
    return found


def _main(libraries: list[str]) -> None:
    for library in libraries or catalogue.LIBRARIES:
        if not catalogue.is_installed(library):
            needed = " ".join(catalogue.LIBRARIES[library].packages)
            print(f"NOT TRIED: {library}; install {needed}", file=sys.stderr, flush=True)
            continue
        names, at_once, found = _names(library), catalogue.LIBRARIES[library].together, {}
        wanted = os.environ.get("ONLY", "").split()
        names = [name for name in names if not wanted or name in wanted]
        for first in range(0, len(names), at_once):
            found.update(_tried(library, names[first : first + at_once]))
        if wanted:
            print(json.dumps(found, indent=1))
            continue
        versions = {package: importlib.metadata.version(package) for package in catalogue.LIBRARIES[library].packages}
        tried = {**(table.results() if table.RESULTS.exists() else {})}
        tried[library] = {"objects": found, "versions": versions, "date": time.strftime("%Y-%m-%d")}
        ordered = {name: tried[name] for name in catalogue.LIBRARIES if name in tried}
        table.RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
        table.PAGE.write_text(table.page(ordered))
        print(f"{library}: {table.counted(found)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])
