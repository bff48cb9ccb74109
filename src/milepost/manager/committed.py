"""What a program is told of each checkpoint that a manager has saved, for ``CheckpointManager(on_committed=...)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from milepost.bundle import index_path
from milepost.engine.arguments import wrong
from milepost.errors import warn
from milepost.logs import WARNING, heard
from milepost.series.leftovers import data_files, visible_shards
from milepost.series.metadata import Metadata
from milepost.storage import Storage


@dataclass(frozen=True, slots=True)
class CommittedSave:
    """A checkpoint that is durable and listed.

    Attributes:
        path: Its path.
        step: Its number.
        metrics: The metrics that were passed to ``save``, as Python numbers; None if there were none.
        metadata: The metadata that was passed to ``save``, or None.
        files: The paths of its files: the index, and the data. They stay while the function runs. A later save may delete them.
        nonfinite: The names of the first values with NaN or infinity, if the manager looks for them.
    """

    path: str
    step: int
    metrics: dict[str, Any] | None
    metadata: Any
    files: tuple[str, ...]
    nonfinite: tuple[str, ...] = ()


OnCommitted = Callable[[CommittedSave], object]
"""A function that is told of each checkpoint."""


def check_hook(on_committed: Any) -> None:
    """Checks an argument ``on_committed``.

    Raises:
        UnsupportedError: It is neither None nor a function that can be called with one argument.
    """
    expected = "a function of one argument, a CommittedSave, or None"
    if on_committed is None:
        return
    if not callable(on_committed) or isinstance(on_committed, type):
        raise wrong("on_committed", on_committed, expected)
    try:
        signature = inspect.signature(on_committed)
    except (TypeError, ValueError):
        return  # a function in C may not tell its arguments
    try:
        signature.bind(None)
    except TypeError:
        raise wrong("on_committed", on_committed, expected) from None


def call_hook(hook: OnCommitted, storage: Storage, path: str, step: int, saved: Metadata) -> None:
    """Tells a function of a checkpoint. An error of the function becomes a warning, because the checkpoint is saved all the same."""
    try:
        data = data_files(storage, path).get(visible_shards(storage, path) or 0, [])
        files = (index_path(path), *sorted(data))
        hook(CommittedSave(path, step, saved.metrics, saved.metadata, files, saved.nonfinite))
    except Exception as error:  # a function of the program may raise anything
        name = getattr(hook, "__qualname__", None) or repr(hook)
        message = f"{path} is saved, but the function {name} of on_committed=... raised {type(error).__name__}: {error}"
        if (log := heard(WARNING)) is not None:
            log.warning("%s", message, exc_info=error)
        warn(f"{message}; the run goes on, and the function is called again after the next save")
