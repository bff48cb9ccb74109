"""Whether a file can be mapped into memory instead of read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer

KEY = "mapped"
TITLE = "can map a file into memory, and read what is used"
HOW = "A value of 64 MiB is loaded in the way that is said to map it: does the process own less than a quarter more memory?"

_SIZE = 64 << 20


def run(peer: Peer, scratch: Path) -> Finding:
    """Loads a large value and looks at what memory the process owns."""
    values = {"alpha": np.ones((128, _SIZE // 4 // 128), np.float32)}
    peer.write(peer.hold(values), scratch / peer.name)
    del values
    before = _owned()
    loaded = peer.map(scratch / peer.name)
    if loaded is None:
        return Finding("no", {"a way to do it": "none"})
    more = (_owned() - before) / _SIZE
    del loaded
    return Finding(
        "yes" if more < 0.25 else "no", {"more memory": "less than a quarter" if more < 0.25 else "all of the value"}
    )


def _owned() -> int:
    """Bytes of memory that belong to no file."""
    found = re.search(r"RssAnon:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0
