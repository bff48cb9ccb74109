"""Whether values are compressed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer, distinct

KEY = "compressed"
TITLE = "values are compressed"
HOW = "Zeros are saved: are the files smaller than the values?"


def run(peer: Peer, scratch: Path) -> Finding:
    """Saves zeros."""
    zeros = {name: np.zeros_like(value) for name, value in distinct(1).items()}
    peer.write(peer.hold(zeros), scratch / peer.name)
    size = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
    part = size / sum(value.nbytes for value in zeros.values())
    return Finding("yes" if part < 0.5 else "no", {"size of the files": f"{part:.0%} of the values"})
