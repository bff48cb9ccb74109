"""Several processes that save one checkpoint."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from benchmarks.peers.child import command, environment
from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer

KEY = "together"
TITLE = "several processes save one checkpoint, which another number of them restores"
HOW = "Two processes, each with half of an array, save; one process restores the whole array."

_LIMIT_S = 400


def run(peer: Peer, scratch: Path) -> Finding:
    """Starts two processes and then a third."""
    if peer.shares is None:
        return Finding("not tried", {"why": "it takes a cluster of the library's own"})
    if not peer.shares:
        return Finding("no", {"a way to do it": "none"})
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    tasks = [command(peer=peer.title, do="together", folder=str(scratch), rank=rank, port=port) for rank in (0, 1)]
    processes = [
        subprocess.Popen(task, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for task in tasks
    ]
    try:
        said = [process.communicate(timeout=_LIMIT_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        return Finding("no", {"saved": f"error: {said[0][-300:]}"})
    alone = command(peer=peer.title, do="alone", folder=str(scratch))
    done = subprocess.run(alone, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    return Finding("no" if done.returncode else "yes", {"restored by one": "no" if done.returncode else "yes"})
