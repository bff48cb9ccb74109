"""Files that try to run code."""

from __future__ import annotations

import contextlib
import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.child import save
from benchmarks.peers.exploit import pickled
from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer, distinct

KEY = "code"
TITLE = "nothing in a file can run code"
HOW = "Each file of a checkpoint in turn is a pickle that runs code, plain or in a zip archive; Keras' file has a Lambda layer."


def run(peer: Peer, scratch: Path) -> Finding:
    """Restores files that would leave a mark."""
    mark = scratch / "mark"
    code = f"open('{mark}', 'w').close()"
    whole = scratch / "whole"
    whole.mkdir()
    save(peer, "one", whole, 1)
    seen = {}
    for kind, content in {"pickle": pickled(code), "zipped pickle": _zipped(pickled(code))}.items():
        attempts = []
        for number, path in enumerate(sorted(path for path in whole.rglob("*") if path.is_file())):
            folder = scratch / f"{kind}-{number}"
            shutil.copytree(whole, folder)
            (folder / path.relative_to(whole)).write_bytes(content)
            attempts.append(lambda folder=folder: peer.read(peer.hold(distinct(0)), folder / peer.name))
        seen[kind] = _tried(mark, *attempts)
    own = scratch / "own"
    own.mkdir()
    for kind, attempt in peer.exploits(own / peer.name, code):
        seen[kind] = _tried(mark, attempt)
    by_default = all(outcome == "did not run" for kind, outcome in seen.items() if not kind.startswith("trusting"))
    cell = "no" if not by_default else "by default" if "ran" in seen.values() else "yes"
    return Finding(cell, seen)


def _tried(mark: Path, *attempts: Callable[[], object]) -> str:
    for attempt in attempts:
        with contextlib.suppress(Exception):  # whatever it raises, the mark tells whether code ran
            attempt()
    ran = mark.exists()
    mark.unlink(missing_ok=True)
    return "ran" if ran else "did not run"


def _zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")
    return file.getvalue()
