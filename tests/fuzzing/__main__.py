"""Searches for hostile files: ``python -m tests.fuzzing [TARGET ...] [--seconds N] [--keep]``.

For each format in turn, a search begins with the inputs that are kept, and goes on with whatever reaches code that no other input has
reached. Printed are the inputs tried, the inputs that are worth to be kept, and what broke. The exit status is 1 if something did.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fuzzing import corpus
from tests.fuzzing.targets import TARGETS

_LIMITS = ("-timeout=20", "-rss_limit_mb=3000", "-max_len=4096", "-print_final_stats=0", "-verbosity=0")


def _run(target: str, folder: Path, *arguments: str, limit: float) -> int:
    command = [sys.executable, "-m", "tests.fuzzing.search", target, str(folder), *_LIMITS, *arguments]
    command.append(f"-artifact_prefix={folder}/findings/")
    with (folder / "log").open("ab") as log:
        try:
            return subprocess.run(command, stdout=log, stderr=log, timeout=limit, check=False).returncode
        except subprocess.TimeoutExpired:
            return 0


def _is_of_libfuzzer(path: Path) -> bool:
    """Whether a finding ended the search, so that libFuzzer itself has stored it."""
    return path.name.startswith(("timeout", "oom", "crash"))


def _words(target: str, folder: Path) -> str:
    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in TARGETS[target].words]
    (folder / "words").write_text("\n".join(lines) + "\n")
    return f"-dict={folder}/words"


def search(target: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Searches for a while.

    Args:
        target: The format.
        seconds: How long.
        folder: Where inputs and findings are put. What is there already is begun with.

    Returns:
        Counts, and the findings.
    """
    inputs = folder / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    (folder / "findings").mkdir(exist_ok=True)
    for data in corpus.load(target):
        (inputs / corpus.name_of(data)).write_bytes(data)
    for old in folder.glob("tried-*"):
        old.unlink()
    words = _words(target, folder)
    begun = time.monotonic()
    while (left := seconds - (time.monotonic() - begun)) > 1:
        status = _run(target, folder, words, f"-max_total_time={int(left)}", str(inputs), limit=left + 60)
        if status and not any(map(_is_of_libfuzzer, (folder / "findings").iterdir())):
            raise RuntimeError((folder / "log").read_text(errors="replace")[-3000:])
    findings = sorted((folder / "findings").glob("*.txt"))
    others = [path for path in (folder / "findings").iterdir() if _is_of_libfuzzer(path)]
    counts = [[*map(int, path.read_text().split())] for path in folder.glob("tried-*")]
    return {
        "target": target,
        "seconds": sum(seconds for _, seconds in filter(None, counts)),
        "tried": sum(tried for tried, _ in filter(None, counts)),
        "kept": sum(1 for _ in inputs.iterdir()),
        "findings": [path.read_text().partition("\n")[0] for path in findings] + [path.name for path in others],
    }


def keep(target: str, folder: Path) -> int:
    """Keeps the inputs without which some step from line to line would not be reached. Returns their number."""
    found = [path.read_bytes() for path in (folder / "inputs").iterdir()]
    fewest = corpus.fewest(TARGETS[target].read, [*corpus.load(target), *found])
    corpus.store(target, fewest)
    return len(fewest)


def main() -> int:
    """Searches and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"by default all: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together")
    parser.add_argument("--folder", type=Path, help="where inputs and findings are put; by default a temporary one")
    parser.add_argument("--keep", action="store_true", help="add what was found to the inputs that are kept")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each target")
    options = parser.parse_args()
    targets = options.targets or list(TARGETS)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="milepost-fuzzing-"))
    failed = False
    for target in targets:
        found = search(target, options.seconds / len(targets), folder / target)
        failed |= bool(found["findings"])
        if options.keep:
            found["kept"] = keep(target, folder / target)
        if options.json:
            print(json.dumps(found), flush=True)
            continue
        print(
            f"{target}: {found['tried']:,} inputs in {found['seconds']} s of the processor, {found['kept']} worth to be kept",
            flush=True,
        )
        for line in found["findings"]:
            print(f"  BROKEN: {line}; see {folder / target / 'findings'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
