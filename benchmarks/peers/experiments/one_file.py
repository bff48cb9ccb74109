"""How many files a checkpoint is."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.child import save
from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer

KEY = "one_file"
TITLE = "a checkpoint is one file"
HOW = "The files of one checkpoint are counted."


def run(peer: Peer, scratch: Path) -> Finding:
    """Counts them."""
    save(peer, "one", scratch, 1)
    count = sum(path.is_file() for path in scratch.rglob("*"))
    return Finding("yes" if count == 1 else "no", {"files": str(count)})
