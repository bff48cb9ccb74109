"""A process killed while it writes over a checkpoint."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.experiments.killed_series import killed
from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer

KEY = "killed_overwrite"
TITLE = "killed while it writes over a checkpoint, the old or the new is there"
HOW = "The same, with a second save to the path of the first."


def run(peer: Peer, scratch: Path) -> Finding:
    """Stops the second save to one path."""
    return killed(peer, scratch, "one")
