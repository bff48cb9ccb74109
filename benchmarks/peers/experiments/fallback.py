"""A series whose newest checkpoint is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.child import outcomes, save
from benchmarks.peers.finding import Finding, judged
from benchmarks.peers.peer import Peer

KEY = "fallback"
TITLE = "falls back to the newest good checkpoint"
HOW = "Of three checkpoints the newest one's largest file is removed, cut short, or has a byte flipped: is the second restored?"


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


_DAMAGES: dict[str, Callable[[Path], None]] = {"removed": Path.unlink, "cut short": _cut, "a byte flipped": _flip}


def run(peer: Peer, scratch: Path) -> Finding:
    """Tries each damage."""
    folders = {}
    for kind, damage in _DAMAGES.items():
        folder = scratch / kind
        folder.mkdir()
        save(peer, "series", folder, 1)
        save(peer, "series", folder, 2)
        before = set(folder.rglob("*"))
        save(peer, "series", folder, 3)
        files = [file for file in {*folder.rglob("*")} - before if file.is_file()]
        if kind == "removed" and len(files) == 1:
            continue  # Then there is no newest checkpoint to fall back from.
        damage(max(files, key=lambda file: file.stat().st_size))
        folders[kind] = folder
    words = {"whole 2": "fell back", "whole 1": "fell back too far", "whole 3": "not noticed"}
    found = [words.get(outcome, outcome) for outcome in outcomes(peer, "series", list(folders.values()))]
    return judged(dict(zip(folders, found, strict=True)), "fell back")
