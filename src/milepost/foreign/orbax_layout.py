"""Which directories are those of Orbax: items, steps, and the directories of its managers.

::

    <item>/_METADATA                        a tree of arrays
    <item>/checkpoint                       in MessagePack, the tree of versions before 0.6, with the arrays that they call
                                            aggregated; the first versions have this and no _METADATA
    <directory>/checkpoint_<n>              an item that flax.training.checkpoints saved in step n
    <step>/<item>/_METADATA                 what a CheckpointManager saved in one step; "default" where there is one item
    <step>/<item>/metadata                  an item in JSON
    <step>/metrics/metrics                  in JSON, the metrics by which the manager chooses the best step
    <directory>/orbax.checkpoint            marks a directory of version 1 of Orbax' functions: one item, called "state"
    <item>/array_metadatas/process_<n>      the generators of keys of random numbers

Source: Orbax 0.1.8, 0.4.8, 0.5.3 and 0.12, observed.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from milepost.coding.messagepack import MAP_BEGINNINGS
from milepost.errors import CorruptCheckpointError

TREE: Final = "_METADATA"
_STEP: Final = "_CHECKPOINT_METADATA"
_AGGREGATED: Final = "checkpoint"
JSON: Final = "metadata"
METRICS: Final = "metrics"
VERSION_1: Final = "orbax.checkpoint"
DEFAULT: Final = "default"
_UNFINISHED: Final = ".orbax-checkpoint-tmp"


def looks_like(path: str) -> bool:
    """Whether a directory is one of Orbax: an item, a step, or the directory of a manager."""
    return is_item(path) or is_step(path) or bool(_steps(path))


def is_item(path: str) -> bool:
    """Whether a directory is an item of Orbax."""
    return has_file(path, TREE) or _is_first_form(path)


def is_step(path: str) -> bool:
    """Whether a directory is what a manager saved in one step."""
    items = [name for name in directories_in(path) if is_item(os.path.join(path, name))]
    is_numbered = os.path.basename(os.path.normpath(path)).isdigit()
    return bool(items) and (has_file(path, _STEP) or DEFAULT in items or is_numbered)


def steps_in(path: str) -> list[str]:
    """The paths of the steps in a manager's directory, in the order of their numbers. None in any other directory."""
    return [] if is_item(path) or is_step(path) else [os.path.join(path, name) for name in _steps(path)]


def unfinished_error(path: str) -> CorruptCheckpointError | None:
    """The error for a directory that Orbax has not finished, or None if its name does not say so."""
    if _UNFINISHED not in os.path.basename(os.path.normpath(path)):
        return None
    return CorruptCheckpointError(
        "Orbax has not finished writing this directory", file=path, remedy="use another step, or save it again"
    )


def has_file(path: str, name: str) -> bool:
    """Whether a directory has a file of this name."""
    return os.path.isfile(os.path.join(path, name))


def directories_in(path: str) -> list[str]:
    """The names of the directories in a directory. An empty list if it cannot be listed."""
    with contextlib.suppress(OSError, ValueError):  # it is not a directory, or the text is not a path
        return sorted(name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name)))
    return []


def _steps(path: str) -> list[str]:
    """The names of the steps in a manager's directory, in the order of their numbers."""
    found = [
        name
        for name in directories_in(path)
        if _UNFINISHED not in name and (is_item(inside := os.path.join(path, name)) or is_step(inside))
    ]
    return sorted(found, key=lambda name: (len(name), name))


def _is_first_form(path: str) -> bool:
    """Whether the file `checkpoint` of a directory is a map in MessagePack, and so not a state file."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(path, _AGGREGATED), "rb") as file:
        return file.read(1) in MAP_BEGINNINGS
    return False
