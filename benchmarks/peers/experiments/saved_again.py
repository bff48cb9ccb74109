"""Restored, not called, and saved again."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.finding import Finding, judged
from benchmarks.peers.peer import Peer, equal

KEY = "saved_again"
TITLE = "a model restored, not yet called, and saved again keeps its values"
HOW = "As above, but saved instead of called; that file is restored into a model that has been called."


def run(peer: Peer, scratch: Path) -> Finding:
    """Tries each kind of model that makes variables late."""
    seen = {}
    for number, (kind, (make, call)) in enumerate(peer.unbuilt().items()):
        folders = [scratch / f"{number}-{name}" for name in ("first", "again")]
        for folder in folders:
            folder.mkdir()
        first, second, third = make(), make(), make()
        call(first)
        call(third)
        peer.write(first, folders[0] / peer.name)
        try:
            peer.read(second, folders[0] / peer.name)
            peer.write(second, folders[1] / peer.name)
            peer.read(third, folders[1] / peer.name)
        except Exception as error:
            seen[kind] = f"error: {type(error).__name__}"
            continue
        seen[kind] = "kept" if equal(peer.values(first), peer.values(third)) else "lost"
    return judged(seen, "kept")
