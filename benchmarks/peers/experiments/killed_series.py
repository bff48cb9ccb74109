"""A process killed while it saves the next checkpoint of a series."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.peers import stops
from benchmarks.peers.child import command, environment, outcomes
from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer

KEY = "killed_series"
TITLE = "killed at any moment of a save, the newest checkpoint found is whole"
HOW = "The second save of a series is stopped after each of its file operations; what a kill would leave is restored."


def run(peer: Peer, scratch: Path) -> Finding:
    """Stops the second save of a series."""
    return killed(peer, scratch, "series")


def killed(peer: Peer, scratch: Path, how: str) -> Finding:
    """Stops a second save and restores what is there at each stop."""
    folder = scratch / "folder"
    folder.mkdir()
    try:
        watched = stops.watch(
            command(peer=peer.title, do="save", how=how, folder=str(folder)), folder, scratch / "moments", environment()
        )
    except stops.CannotTraceError as problem:
        return Finding("not tried", {"why": str(problem)})
    found = Counter(outcome.partition(":")[0] for outcome in outcomes(peer, how, watched.moments))
    seen = {
        "moments": len(watched.moments),
        "old": found["whole 1"],
        "new": found["whole 2"],
        "error": found["error"] + found["crash"],
        "wrong values, no error": found["wrong values"],
    }
    whole = seen["old"] + seen["new"] == seen["moments"]
    return Finding("yes" if whole else "no", {name: str(count) for name, count in seen.items()})
