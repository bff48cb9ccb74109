"""Results that many tests look at, computed once, also where tests run in several processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

fcntl = pytest.importorskip("fcntl", reason="processes wait for each other by its locks")


def computed_once(directories: pytest.TempPathFactory, name: str, compute: Callable[[], Any]) -> Any:
    """What ``compute`` returns, as JSON gives it back; the first process computes it, and the others wait.

    Args:
        directories: Where this process of the tests has its temporary directories.
        name: Tells these results from others.
        compute: Returns the results.
    """
    own = directories.getbasetemp()
    shared = own.parent if own.name.startswith("popen-") else own
    file = shared / f"{name}.json"
    with Path(shared, f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_text(json.dumps(compute()))
    return json.loads(file.read_text())
