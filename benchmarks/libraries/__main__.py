"""Tries each library that is installed, or those that are named: `python -m benchmarks.libraries [LIBRARY ...]`."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
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
            seen = [_read(Path(directory, str(number), f"{do}.json")) for do in ("saved", "resumed")]
            found = verdict.judged(*seen)
            yield name, {key: _without_folders(text, f"{directory}/{number}/") for key, text in found.items()}


def _without_folders(text: str, directory: str) -> str:
    """A text without the folders of this machine."""
    for folder in (directory, *(f"{each}/" for each in sys.path if each)):
        text = text.replace(folder, "")
    return text


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"untried": "the process ended before"}
    return found


def _try(library: str, further: bool) -> None:
    """Tries objects of a library and writes the results after each process, so that it may be stopped and go on."""
    about = catalogue.LIBRARIES[library]
    before = table.results() if table.RESULTS.exists() else {}
    found = dict(before[library]["objects"]) if further and library in before else {}
    names = _names(library)
    left = [name for name in names if name not in found]
    versions = {package: importlib.metadata.version(package) for package in about.packages}
    for first in range(0, len(left), about.together):
        found.update(_tried(library, left[first : first + about.together]))
        tried = {name: found[name] for name in names if name in found}
        entry = {"of": len(names), "versions": versions, "date": time.strftime("%Y-%m-%d"), "objects": tried}
        results = {**(table.results() if table.RESULTS.exists() else {}), library: entry}
        ordered = {name: results[name] for name in catalogue.LIBRARIES if name in results}
        table.RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
        table.write(ordered)
        print(f"{library}: {table.counted(found)}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> None:
    """Does what the words of a command line say."""
    arguments = _parser().parse_args(words)
    for library in arguments.libraries or catalogue.LIBRARIES:
        if library not in catalogue.LIBRARIES:
            raise SystemExit(f"{library} is not one of {', '.join(catalogue.LIBRARIES)}")
        if not catalogue.is_installed(library):
            needed = " ".join(catalogue.LIBRARIES[library].packages)
            print(f"NOT TRIED: {library}; install {needed}", file=sys.stderr, flush=True)
        elif arguments.only:
            print(json.dumps(dict(_tried(library, arguments.only)), indent=1))
        else:
            _try(library, arguments.further)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries", description=__doc__)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=", ".join(catalogue.LIBRARIES))
    parser.add_argument("--further", action="store_true", help="keep results that there are, and try the other objects")
    parser.add_argument("--only", action="append", metavar="NAME", help="try this object, and print what is found")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
