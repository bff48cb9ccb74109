"""Files of which one byte is another."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from benchmarks.peers.child import outcomes, save
from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer

KEY = "flipped_bytes"
TITLE = "a flipped byte in any tensor is noticed"
HOW = "One byte of a saved file is inverted, at places all over every file, and the file is restored: an error, or wrong values?"

_PLACES = 16


def run(peer: Peer, scratch: Path) -> Finding:
    """Flips bytes at places that are evenly spread over each file."""
    whole = scratch / "whole"
    whole.mkdir()
    save(peer, "one", whole, 1)
    folders: list[Path] = []
    for path in sorted(path for path in whole.rglob("*") if path.is_file()):
        size = path.stat().st_size
        for place in sorted({size * (2 * number + 1) // (2 * _PLACES) for number in range(_PLACES if size else 0)}):
            folder = scratch / f"flipped-{len(folders)}"
            shutil.copytree(whole, folder)
            with (folder / path.relative_to(whole)).open("r+b") as file:
                file.seek(place)
                byte = file.read(1)
                file.seek(place)
                file.write(bytes([byte[0] ^ 0xFF]))
            folders.append(folder)
    found = Counter(outcome.partition(":")[0] for outcome in outcomes(peer, "one", folders))
    seen = {
        "bytes flipped": len(folders),
        "noticed": found["error"] + found["crash"],
        "without effect": found["whole 1"],
        "wrong values, no error": found["wrong values"],
    }
    return Finding("no" if found["wrong values"] else "yes", {name: str(count) for name, count in seen.items()})
