"""Where inputs are kept: one archive for each format, in which an input's name is its digest."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import milepost
from milepost.errors import MilepostError

FOLDER = Path(__file__).parent / "corpus"
_SOURCES = os.path.dirname(os.path.abspath(milepost.__file__)) + os.sep
_Step = tuple[CodeType, int, int]
_EPOCH = (1980, 1, 1, 0, 0, 0)


def load(target: str, folder: Path = FOLDER) -> list[bytes]:
    """The inputs that are kept for a target."""
    path = folder / f"{target}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in archive.namelist()]


def store(target: str, inputs: Iterable[bytes], folder: Path = FOLDER) -> None:
    """Keeps inputs for a target. The same inputs make the same archive."""
    folder.mkdir(exist_ok=True)
    named = {name_of(data): data for data in inputs}
    with zipfile.ZipFile(folder / f"{target}.zip", "w") as archive:
        for name in sorted(named):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, named[name], compresslevel=9)


def fewest(read: Callable[[bytes], object], inputs: Iterable[bytes]) -> list[bytes]:
    """The inputs that each reach a step from one line of milepost to another that no shorter one reaches."""
    seen: set[_Step] = set()
    kept = []
    for data in sorted(set(inputs), key=lambda each: (len(each), each)):
        reached = _steps(read, data)
        if not reached <= seen:
            kept.append(data)
            seen |= reached
    return kept


def _steps(read: Callable[[bytes], object], data: bytes) -> set[_Step]:
    found: set[_Step] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        code, last = frame.f_code, 0
        if not code.co_filename.startswith(_SOURCES):
            return None

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            found.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return step

        return step

    before = sys.gettrace()
    gc.disable()  # finalizers of what was used before are no steps of this input
    sys.settrace(enter)
    try:
        with warnings.catch_warnings(), contextlib.suppress(MilepostError):
            warnings.simplefilter("ignore")
            read(data)
    finally:
        sys.settrace(before)
        gc.enable()
    return found


def name_of(data: bytes) -> str:
    """The name of an input."""
    return hashlib.sha256(data).hexdigest()[:16]
