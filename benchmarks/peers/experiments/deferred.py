"""Restored before the model has made its variables."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.finding import Finding, judged
from benchmarks.peers.peer import Peer, equal

KEY = "deferred"
TITLE = "deferred restoration"
HOW = "A model is saved, restored into one that has not made its variables yet, and that one is called: has it the saved values?"


def run(peer: Peer, scratch: Path) -> Finding:
    """Tries each kind of model that makes variables late."""
    seen = {}
    for number, (kind, (make, call)) in enumerate(peer.unbuilt().items()):
        folder = scratch / str(number)
        folder.mkdir()
        first, second = make(), make()
        call(first)
        peer.write(first, folder / peer.name)
        try:
            peer.read(second, folder / peer.name)
            call(second)
        except Exception as error:
            seen[kind] = f"error: {type(error).__name__}"
            continue
        seen[kind] = "restored" if equal(peer.values(first), peer.values(second)) else "lost"
    return judged(seen, "restored")
