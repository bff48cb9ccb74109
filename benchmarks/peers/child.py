"""A process of its own for one library: `python -m benchmarks.peers.child TASK`.

It saves while `stops.watch` watches, or restores from many folders, of which one may crash it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import libraries, stops
from benchmarks.peers.peer import Peer, distinct, equal

_RESULT = "result: "
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}


def command(**task: Any) -> list[str]:
    """The command that does a task."""
    return [sys.executable, "-m", "benchmarks.peers.child", json.dumps(task)]


def environment() -> dict[str, str]:
    """What the command needs to be quiet and to find this package."""
    root = str(Path(__file__).parents[2])
    found = os.environ.get("PYTHONPATH")
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": f"{found}{os.pathsep}{root}" if found else root}


def outcomes(peer: Peer, how: str, folders: Sequence[Path]) -> list[str]:
    """What a fresh program finds in each folder.

    Args:
        peer: The library.
        how: ``series`` to restore the newest checkpoint, ``one`` to restore the only one.
        folders: Where `save` has saved ``distinct(1)``, ``distinct(2)``, ...

    Returns:
        For each ``whole N`` (the values of ``distinct(N)``), ``wrong values``, ``error: ...`` or ``crash``.
    """
    found: list[str] = []
    while len(found) < len(folders):
        task = command(peer=peer.title, do="read", how=how, folders=[str(folder) for folder in folders[len(found) :]])
        done = subprocess.run(task, env=environment(), capture_output=True, text=True, check=False)
        found += [line.removeprefix(_RESULT) for line in done.stdout.splitlines() if line.startswith(_RESULT)]
        if done.returncode > 0:
            raise RuntimeError(f"{task} ended with {done.returncode}: {done.stderr[-2000:]}")
        if done.returncode < 0:
            found.append("crash")
    return found


def save(peer: Peer, how: str, folder: Path, number: int) -> None:
    """Saves ``distinct(number)``."""
    live = peer.hold(distinct(number))
    if how == "series":
        peer.save_next(live, folder, number)
    else:
        peer.write(live, folder / peer.name)


def _read(peer: Peer, how: str, folder: Path) -> str:
    live = peer.hold(distinct(0))
    try:
        if how == "series":
            peer.restore_newest(live, folder)
        else:
            peer.read(live, folder / peer.name)
    except Exception as error:
        return f"error: {type(error).__name__}"
    found = peer.values(live)
    return next((f"whole {number}" for number in (1, 2, 3) if equal(found, distinct(number))), "wrong values")


def _watched(peer: Peer, how: str, folder: Path) -> None:
    """Saves twice, so that nothing is imported in the second save, which is watched."""
    with tempfile.TemporaryDirectory() as elsewhere:
        for number in (1, 2):
            save(peer, how, Path(elsewhere), number)
    save(peer, how, folder, 1)
    stops.until_told()
    save(peer, how, folder, 2)
    stops.finished()


def _main(task: dict[str, Any]) -> None:
    peer = libraries.peer(task["peer"])
    if task["do"] == "save":
        _watched(peer, task["how"], Path(task["folder"]))
    elif task["do"] == "together":
        peer.save_share(Path(task["folder"]) / peer.name, task["rank"], task["port"])
    elif task["do"] == "alone":
        found = peer.restore_shares(Path(task["folder"]) / peer.name)
        assert equal({"rows": found}, {"rows": distinct(1, "rows")["rows"]})
    else:
        for folder in task["folders"]:
            print(_RESULT + _read(peer, task["how"], Path(folder)), flush=True)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
