"""What a run has computed, written to a file while it runs, and the moment at which it is killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import torch

KILLS = {"SIGTERM": signal.SIGTERM}


class Trace:
    """Notes of a run, and the moments that it reaches.

    Args:
        path: The file that gets a line for each note.
        kill: The kind and the number of the moment at which the process is killed, or None.
    """

    def __init__(self, path: Path, kill: tuple[str, int] | None = None) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._kill = kill
        self.counts: Counter[str] = Counter()

    def reach(self, *kinds: str) -> None:
        """Records that moments of these kinds are reached."""
        for kind in kinds:
            self.counts[kind] += 1
            if self._kill == (kind, self.counts[kind]):
                os.kill(os.getpid(), KILLS.get(kind, signal.SIGKILL))

    def note(self, key: str, value: Any) -> None:
        """Writes what was computed. Each key is written once in an undisturbed run."""
        os.write(self._file, (json.dumps([key, plain(value)]) + "\n").encode())


def read(path: Path) -> list[tuple[str, str]]:
    """The notes of a run, in their order."""
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def plain(value: Any) -> Any:
    """A value as text that differs if a bit differs, without regard to the order of dicts."""
    if isinstance(value, torch.Tensor):
        array = value.detach().cpu().contiguous()
        if array.numel() == 1:
            return f"{array.dtype}{list(array.shape)} {array.item()!r}"
        return hashlib.sha256(f"{array.dtype}{list(array.shape)}".encode() + array.numpy().tobytes()).hexdigest()[:16]
    if isinstance(value, dict):
        return {str(name): plain(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (int, str)) else repr(value)
