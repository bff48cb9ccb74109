"""What a restore that fails leaves behind."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.experiments.report import misfits
from benchmarks.peers.finding import Finding, judged
from benchmarks.peers.peer import Peer, distinct, equal

KEY = "failed_restore"
TITLE = "a restore that fails has changed nothing"
HOW = "The file lacks a value, has one of another shape or type, or is cut short: after the error, has the program its old values?"


def run(peer: Peer, scratch: Path) -> Finding:
    """Tries what makes restores fail, and leaves out what did not fail."""
    seen = {}
    tried = {kind: misfits()[kind] for kind in ("missing", "another shape", "another type")}
    tried["cut short"] = distinct(1), distinct(1)
    for number, (kind, (saved, live)) in enumerate(tried.items()):
        path = scratch / str(number) / peer.name
        path.parent.mkdir()
        peer.write(peer.hold(saved), path)
        if kind == "cut short":
            largest = max(
                (file for file in path.parent.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size
            )
            with largest.open("r+b") as file:
                file.truncate(largest.stat().st_size * 3 // 4)
        before = {name: value + 1 for name, value in live.items()}
        holder = peer.hold(before)
        try:
            peer.read(holder, path)
        except Exception as error:
            changed = not equal(peer.values(holder), before)
            seen[kind] = f"{'changed' if changed else 'unchanged'} after {type(error).__name__}"
    return judged(seen, "unchanged")
