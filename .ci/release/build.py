"""Builds the wheel and the source archive of the last commit, twice, and refuses them if a byte differs.

usage: build.py DIRECTORY

The two builds differ in what a build must not depend on: the directory, the clock of the files, the time zone, the language, the permissions
that new files get, and the order of sets. The first makes the wheel from the source archive, as installers do; the second makes both from the
tree. What is built has the time of the commit (``SOURCE_DATE_EPOCH``). The versions of the build tools are those of the extra ``release`` in
pyproject.toml: the name of the tool is in the wheel. So whoever builds the commit again, anywhere, gets the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def git(*arguments: str) -> str:
    """What a command of git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def unpacked(directory: Path, time: int) -> Path:
    """The files of the last commit in a directory, all with one time of change. Files that git does not know are not among them."""
    directory.mkdir(parents=True)
    archive = directory.with_suffix(".tar")
    git("archive", "--output", str(archive), "HEAD")
    with tarfile.open(archive) as members:
        members.extractall(directory, filter="data")
    for path in directory.rglob("*"):
        os.utime(path, (time, time))
    return directory


def build(tree: Path, to: Path, arguments: list[str], **environment: str) -> dict[str, Path]:
    """Builds a tree, and returns the files by name."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to), *arguments, str(tree)]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        umask=int(environment["UMASK"], 8),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"The build has failed:\n{done.stdout}{done.stderr}")
    return {path.name: path for path in sorted(to.iterdir())}


def main(directory: Path) -> None:
    """Builds twice, compares, and fills the directory."""
    if changes := git("status", "--porcelain"):
        print(f"Not built, because it is not committed:\n{changes}")
    time = git("log", "-1", "--format=%ct")
    with tempfile.TemporaryDirectory() as temporary:
        first, second = Path(temporary, "a"), Path(temporary, "another", "directory")
        common = {"SOURCE_DATE_EPOCH": time}
        built = build(
            unpacked(first, int(time)),
            first.with_name("first"),
            [],
            **common,
            UMASK="022",
            TZ="UTC",
            LC_ALL="C.UTF-8",
            PYTHONHASHSEED="1",
        )
        again = build(
            unpacked(second, 1_000_000_000),
            second.with_name("second"),
            ["--sdist", "--wheel"],
            **common,
            UMASK="077",
            TZ="Asia/Tokyo",
            LC_ALL="C",
            PYTHONHASHSEED="2",
        )
        if built.keys() != again.keys():
            sys.exit(f"Two builds have made different files: {sorted(built)} and {sorted(again)}.")
        for name, path in built.items():
            if path.read_bytes() != again[name].read_bytes():
                sys.exit(
                    f"Two builds of {name} differ. Unpack both and compare them: the build depends on its directory, time or environment."
                )
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for name, path in built.items():
            shutil.copyfile(path, directory / name)
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
