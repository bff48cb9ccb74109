"""Tries versions of libraries: `python -m benchmarks.versions [--environments FOLDER] [--use NAME=PYTHON] [NAME ...]`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.versions import table
from benchmarks.versions.environments import ENVIRONMENTS, LIBRARIES
from benchmarks.versions.with_files import COMPARING

_ROOT: Final = Path(__file__).parents[2]
_NEEDED: Final = ("google-crc32c>=1.7", "ml_dtypes>=0.3.1", "numpy>=1.26", "protobuf>=4.25")
_QUIET: Final = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
}
_KILL: Final = 8
"""The step after which a run is killed. It was saved two steps before."""
_MINUTES: Final = 15
_FACTS: Final = """
import importlib.metadata, json, platform, sys
print(json.dumps([platform.python_version(), {name: importlib.metadata.version(name) for name in sys.argv[1:]}]))
"""


def python_of(name: str, folder: Path) -> Path:
    """The Python of an environment, which is made if what is to be installed has changed."""
    wanted, directory = ENVIRONMENTS[name], folder / name
    python, made = directory / "bin" / "python", directory / "made"
    if not made.exists() or made.read_text() != repr(wanted):
        find = [str(_ROOT / ".ci" / "find-python"), wanted.python]
        finder = subprocess.run(find, check=True, capture_output=True, text=True, env={**os.environ, "PYTHON": ""})
        subprocess.run([finder.stdout.strip(), "-m", "venv", "--clear", directory], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_NEEDED, *wanted.packages], check=True)
        made.write_text(repr(wanted))
    return python


def process(python: Path, program: str, directory: str | Path, kill: int = 0, *options: str) -> dict[str, Any]:
    """What a process of a run tells; its error if it ends otherwise than it should."""
    paths = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    command = [str(python), "-m", "benchmarks.versions.training", program, str(directory), str(kill), *options]
    try:
        ended = subprocess.run(
            command,
            env={**os.environ, **_QUIET, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=60 * _MINUTES,
            check=False,
            cwd=directory,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it did not end within {_MINUTES} minutes"}
    if ended.returncode:
        return {"error": (ended.stderr.strip().splitlines() or ["no message"])[-1]}
    told: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return told


def made(folder: Path, name: str) -> Path:
    """A new directory of a run."""
    directory = folder / name
    directory.mkdir(parents=True)
    return directory


def tried(python: Path, program: str, folder: Path) -> dict[str, Any]:
    """What comes of a run that is killed and resumed. The killed run stays in ``folder``, for other versions."""
    shutil.rmtree(folder, ignore_errors=True)
    whole = process(python, program, made(folder, "whole"))
    if "error" in whole:
        own = {} if program in COMPARING else process(python, program, made(folder, "without"), 0, "--without")
        return {"result": table.ALSO_WITHOUT if "error" in own else table.FAILS, "error": whole["error"]}
    if program in COMPARING:
        return {"result": table.READ if whole["restored"] else table.DIFFERS}
    process(python, program, made(folder, "killed"), _KILL)
    resumed = process(python, program, _copy(folder / "killed"))
    if "error" in resumed:
        return {"result": table.FAILS, "error": resumed["error"]}
    is_same = resumed["restored"] and resumed["final"] == whole["final"]
    return {"result": table.EXACT if is_same else table.DIFFERS}


def _copy(directory: Path) -> str:
    target = tempfile.mkdtemp(dir=directory.parent)
    shutil.copytree(directory, target, dirs_exist_ok=True)
    return target


def crossed(python: Path, program: str, killed: Path) -> str:
    """What comes of a run that another version has begun."""
    resumed = process(python, program, _copy(killed))
    if "error" in resumed:
        return f"fails: {resumed['error']}"
    return table.RESTORED if resumed["restored"] else table.DIFFERS


def facts(python: Path, program: str) -> dict[str, Any]:
    """The versions of what a program uses, and the day."""
    command = [str(python), "-c", _FACTS, *LIBRARIES[program]]
    version, packages = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"python": version, "versions": packages, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}


def cross(program: str, pythons: dict[str, Path], runs: Path) -> None:
    """Resumes the run of the oldest version with the newest, and the other way. Of a program that trains nothing, the files are read."""
    of_program = table.read().get(program, {})
    names = [each for each in ENVIRONMENTS if of_program.get(each, {}).get("result") in (table.EXACT, table.READ)]
    oldest, newest = names[:1], names[-1:]
    for begun, resumed in ((oldest, newest), (newest, oldest)):
        killed = runs / program / "".join(begun) / ("whole" if program in COMPARING else "killed")
        if oldest != newest and killed.exists() and resumed[0] in pythons:
            outcome = crossed(pythons[resumed[0]], program, killed)
            note(program, resumed[0], {"restores": {begun[0]: outcome}})


def note(program: str, name: str, entry: dict[str, Any]) -> None:
    """Adds what was found to the results, to which other processes may add meanwhile."""
    results = table.read()
    of_program = results.setdefault(program, {})
    of_program[name] = {**of_program.get(name, {}), **entry} if "restores" in entry else entry
    table.write(results)
    print(f"{program}, {name}: {entry}", flush=True)


def try_all(names: Sequence[str], only: Sequence[str], used: dict[str, str], folder: Path) -> None:
    """Runs the programs of environments. What is known of other environments stays."""
    pythons = {name: Path(used[name]) if name in used else python_of(name, folder) for name in names}
    for program in (each for each in LIBRARIES if not only or each in only):
        for name in (each for each in names if program in ENVIRONMENTS[each].programs):
            tried_now = tried(pythons[name], program, folder / "runs" / program / name)
            note(program, name, {**facts(pythons[name], program), **tried_now})
        cross(program, pythons, folder / "runs")


def main() -> None:
    """Runs what the command line names. Ends with 1 if anything is not exact."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"environments: {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--environments", type=Path, default=_ROOT / ".cache" / "versions", help="where they are made")
    parser.add_argument(
        "--use", action="append", default=[], metavar="NAME=PYTHON", help="a Python that has all that is needed"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PROGRAM", help="programs to run; all by default"
    )
    arguments = parser.parse_args()
    names = arguments.names or list(ENVIRONMENTS)
    used: dict[str, str] = dict(each.split("=", 1) for each in arguments.use)
    try_all(names, arguments.only, used, arguments.environments)
    table.publish()
    bad = [row for row in table.rows(table.read()) if row.environment in names and not row.is_good]
    for row in bad:
        print(f"{row.program}, {row.environment}: {row.result} {row.crossed}", file=sys.stderr)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
