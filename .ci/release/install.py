"""Installs what was built in new environments, with the oldest and the newest dependencies, and runs what a user would run first.

usage: install.py DIRECTORY [VERSION...] [--with FRAMEWORK...]        for example: install.py dist 3.11 3.14 --with jax==0.6.2 optax flax

Without versions, all are tried that pyproject.toml names, and the last lines say which of them this machine lacks. A version that is asked
for must be there. These programs import nothing of this repository. With frameworks, which may have versions, the programs of docs/start.md that
need no others are preempted and resumed, as the tests in the source archive do it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = ["fast", "cli", "keras", "progress"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
IDENTITY = "import milepost, sys; print(milepost.__version__, milepost.__file__.startswith(sys.prefix))"
COMMANDS = [
    "ls run",
    "verify run/ckpt-100",
    "show run/ckpt-100",
    "report run/ckpt-90 run/ckpt-100 -o report.html",
    "convert run/ckpt-100 out.npz",
]


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program prints. The check ends if the program fails."""
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} has failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def find(version: str) -> str | None:
    """The program of a version of Python, if it is on this machine."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    command = ["sh", str(ROOT / ".ci" / "find-python"), version]
    done = subprocess.run(command, env={**ENVIRONMENT, "PYTHON": ""}, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def ten_lines() -> str:
    """The first program of the README."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return str(blocks[0])


class Installation:
    """A new environment with one file of the release in it."""

    def __init__(self, directory: Path, python: str, file: Path) -> None:
        self.directory, self.file = directory, file
        run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", python, directory)
        self.programs = directory / ("Scripts" if os.name == "nt" else "bin")

    def install(self, age: str, extras: list[str], *options: str) -> None:
        """Installs the file, with the oldest or the newest dependencies that it permits.

        Its dependencies are named beside it, since only what is asked for by name gets its oldest version. What these depend on gets the newest:
        most libraries do not say which versions are too old for them.
        """
        needed = [
            *PROJECT["project"]["dependencies"],
            *(each for extra in extras for each in PROJECT["project"]["optional-dependencies"][extra]),
        ]
        names = {re.split(r"[<>=;\[ ]", each)[0] for each in needed}
        self.uv(
            "install",
            "--resolution",
            RESOLUTIONS[age],
            *options,
            f"milepost[{','.join(extras)}] @ {self.file.as_uri()}",
            *sorted(names),
        )
        self.uv("check")

    def uv(self, command: str, *arguments: str) -> str:
        """Runs a command for the packages of the environment."""
        python = self.programs / "python"
        return run(sys.executable, "-m", "uv", "pip", command, "--quiet", "--python", python, *arguments)

    def check_first_use(self, version: str, age: str) -> None:
        """The demo and the ten lines of the README run, and run again, with the milepost that is installed.

        The newest dependencies do not warn. Old ones may, of newer versions of Python.
        """
        warnings = ["-W", "error"] if age == "newest" else []
        work = self.directory / "work"
        work.mkdir(exist_ok=True)
        identity = run(self.programs / "python", "-I", "-c", IDENTITY, cwd=work).split()
        if identity != [version, "True"]:
            sys.exit(f"{self.file.name} should give milepost {version} of its own environment, and gives: {identity}")
        run(self.programs / "milepost", "demo", cwd=work)
        for _ in range(2):
            run(self.programs / "python", "-I", *warnings, "-c", ten_lines(), cwd=work)

    def check_commands(self) -> None:
        """The commands that look at a checkpoint run on that of the ten lines."""
        for command in COMMANDS:
            run(self.programs / "milepost", *command.split(), cwd=self.directory / "work")

    def check_frameworks(self, archive: Path, frameworks: list[str]) -> str:
        """The tests of the source archive run with the frameworks and the milepost that are installed. Returns what they print."""
        self.uv("install", f"milepost[test-core] @ {self.file.as_uri()}", *frameworks)
        tests = self.directory / "tests"
        with tarfile.open(archive) as members:
            members.extractall(tests, filter="data")
        (root,) = tests.iterdir()
        shutil.rmtree(root / "src")
        return run(
            self.programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_start.py", cwd=root
        )

    def versions(self) -> str:
        """What is installed, in one line."""
        return self.uv("freeze").replace("\n", " ").replace(f"milepost @ {self.file.as_uri()} ", "")


def check(directory: Path, version: str, python: str, frameworks: list[str]) -> None:
    """Tries the wheel and the source archive with one Python."""
    (wheel,), (archive,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    milepost = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as temporary:
        for age in RESOLUTIONS:
            installed = Installation(Path(temporary, age), python, wheel)
            installed.install(age, [], "--only-binary", ":all:")
            installed.check_first_use(milepost, age)
            print(f"Python {version}, the wheel, {age}: {installed.versions()}", flush=True)
            installed.install(age, EXTRAS, "--only-binary", ":all:")
            installed.check_first_use(milepost, age)
            installed.check_commands()
            print(f"Python {version}, the wheel with [{','.join(EXTRAS)}], {age}: {installed.versions()}", flush=True)
        if frameworks:
            installed = Installation(Path(temporary, "frameworks"), python, wheel)
            print(installed.check_frameworks(archive, frameworks), flush=True)
            print(f"Python {version}, the wheel with frameworks: {installed.versions()}", flush=True)
        (backend,) = PROJECT["build-system"]["requires"]
        constraints = Path(temporary, "constraints.txt")
        for age, constraint in (("oldest", backend.replace(">=", "==")), ("newest", backend)):
            constraints.write_text(constraint)
            installed = Installation(Path(temporary, f"source-{age}"), python, archive)
            installed.install("newest", [], "--no-cache", "--build-constraints", str(constraints))
            installed.check_first_use(milepost, "newest")
            print(f"Python {version}, the source archive, built with {constraint}", flush=True)


def main(directory: Path, wanted: list[str], frameworks: list[str]) -> None:
    """Tries each version of Python."""
    classifiers = "\n".join(PROJECT["project"]["classifiers"])
    supported = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", classifiers, re.MULTILINE)
    lacking = []
    for version in wanted or supported:
        if python := find(version):
            check(directory.resolve(), version, python, frameworks)
        elif wanted:
            sys.exit(f"Python {version} is not on this machine. Install it, for example with pyenv.")
        else:
            lacking.append(version)
    if len(lacking) == len(supported):
        sys.exit(f"None of the versions {', '.join(supported)} of Python is on this machine.")
    for version in lacking:
        print(f"NOT RUN: Python {version}, which is not on this machine.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--with", nargs="*", default=[], dest="frameworks")
    arguments = parser.parse_args()
    main(arguments.directory, arguments.versions, arguments.frameworks)
