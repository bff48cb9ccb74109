"""What a save has synced when it returns."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import stops
from benchmarks.peers.child import command, environment
from benchmarks.peers.finding import Finding
from benchmarks.peers.peer import Peer

KEY = "syncs"
TITLE = "files and directories are synced when a save returns"
HOW = "strace: has each file that a save leaves been synced after its last write, and each directory after the last name that it got?"

_FD = r"\d+<([^>]*)>"
_PATH = r'(?:AT_FDCWD<[^>]*>, )?"([^"]*)"'


def run(peer: Peer, scratch: Path) -> Finding:
    """Watches the second save of a series."""
    folder = scratch / "folder"
    folder.mkdir()
    task = command(peer=peer.title, do="save", how="series", folder=str(folder))
    try:
        watched = stops.watch(task, folder, scratch / "moments", environment())
    except stops.CannotTraceError as problem:
        return Finding("not tried", {"why": str(problem)})
    files, directories = synced(watched.calls, folder)
    seen = {"files": _share(files), "directories": _share(directories)}
    parts = {share.partition(" ")[0] for share in seen.values()}
    return Finding("yes" if parts == {"all"} else "no" if parts == {"none"} else "partly", seen)


def _share(synced: dict[str, bool]) -> str:
    good = sum(synced.values())
    return f"{'all' if good == len(synced) else 'some' if good else 'none'} of {len(synced)}"


def synced(calls: Sequence[str], folder: Path) -> tuple[dict[str, bool], dict[str, bool]]:
    """Follows the calls of a save.

    Args:
        calls: What it called, as strace writes it.
        folder: What it wrote into.

    Returns:
        The files that it wrote and the directories that it changed, all of which still exist, and whether each is synced.
    """
    root = str(folder)
    files: dict[str, bool] = {}
    directories: dict[str, bool] = {}
    unnamed: dict[str, str] = {}

    def changed(path: str) -> None:
        directories[os.path.dirname(path)] = False

    for call in calls:
        if root not in call or re.search(r"= -1 E", call):
            continue
        name, _, rest = call.partition("(")
        paths = re.findall(_PATH, rest)
        held = re.match(_FD + r"(\(deleted\))?", rest)
        where = held[1] if held else ""
        where = unnamed.get(where, where)
        if name in ("openat", "creat") and ("O_CREAT" in rest or name == "creat"):
            opened = re.search(r"= \d+<([^>]*)>", rest)
            path = opened[1] if opened else paths[0]
            if "O_EXCL" in rest or "O_TRUNC" in rest or path not in files:
                files[path] = False
                changed(path)
        elif name.startswith(("write", "pwrite", "ftruncate", "fallocate", "copy_file", "sendfile")):
            files[where] = False
        elif name in ("fsync", "fdatasync"):
            for known in (files, directories):
                if where in known:
                    known[where] = True
        elif name.startswith("rename"):
            _moved(files, directories, *paths[:2])
            changed(paths[0])
            changed(paths[1])
        elif name.startswith("link"):
            # A file made without a name gets one; strace goes on to call it by its number.
            files[paths[1]] = files.get(where, False)
            if where:
                unnamed[where] = paths[1]
            changed(paths[1])
        elif name.startswith("mkdir"):
            directories.setdefault(paths[0], True)
            changed(paths[0])
        elif name.startswith(("unlink", "rmdir")):
            files.pop(paths[0], None)  # a name that comes back after a power cut loses nothing
    return (
        {path: good for path, good in files.items() if path.startswith(root) and os.path.isfile(path)},
        {path: good for path, good in directories.items() if path.startswith(root) and os.path.isdir(path)},
    )


def _moved(files: dict[str, bool], directories: dict[str, bool], old: str, new: str) -> None:
    """Gives a file, or a directory with all in it, its new name."""
    for known in (files, directories):
        for path in list(known):
            if path == old or path.startswith(f"{old}/"):
                known[new + path[len(old) :]] = known.pop(path)
