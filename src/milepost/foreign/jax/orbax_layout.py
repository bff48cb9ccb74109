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
    <step>/_CHECKPOINT_METADATA             in JSON, when the save began, and when it ended
    <directory>.orbax-checkpoint-tmp*       a step or an item that was not finished

Source: Orbax 0.1.8, 0.4.8, 0.5.3 and 0.12, observed.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import closing
from typing import Any, Final

from milepost.coding.json_data import LONGEST, parse_json
from milepost.coding.messagepack import MAP_BEGINNINGS
from milepost.errors import CorruptCheckpointError, MilepostError
from milepost.storage.default import DEFAULT_STORAGE

TREE: Final = "_METADATA"
STEP: Final = "_CHECKPOINT_METADATA"
"""The file in which a save of Orbax says when it began, and when it ended."""
AGGREGATED: Final = "checkpoint"
JSON: Final = "metadata"
METRICS: Final = "metrics"
VERSION_1: Final = "orbax.checkpoint"
DEFAULT: Final = "default"
DESCRIBED: Final = "array_metadatas"
UNFINISHED: Final = ".orbax-checkpoint-tmp"
"""What the name of a directory that is not finished has after its own."""
_MANIFEST: Final = "manifest.ocdbt"


def looks_like(path: str) -> bool:
    """Whether a directory is one of Orbax: an item, a step, or the directory of a manager. One that was not finished is one, too."""
    return is_item(path) or is_step(path) or bool(_steps(path)) or _unfinished_part(path) is not None


def is_item(path: str) -> bool:
    """Whether a directory is an item of Orbax."""
    return has_file(path, TREE) or has_aggregated(path)


def is_step(path: str) -> bool:
    """Whether a directory is what a manager saved in one step."""
    items = [name for name in directories_in(path) if is_item(os.path.join(path, name))]
    is_numbered = os.path.basename(os.path.normpath(path)).isdigit()
    return bool(items) and (has_file(path, STEP) or DEFAULT in items or is_numbered)


def is_of_step(path: str) -> bool:
    """Whether a directory is all that was saved in one step: what a manager saved, or an item with a number in its name."""
    return is_step(path) or os.path.basename(path).rpartition("_")[2].isdigit()


def steps_in(path: str) -> list[str]:
    """The paths of the steps in a manager's directory, in the order of their numbers. None in any other directory."""
    return [] if is_item(path) or is_step(path) else [os.path.join(path, name) for name in _steps(path)]


def unfinished_error(path: str) -> CorruptCheckpointError | None:
    """The error for an item or a step that Orbax has not finished, or None if nothing shows that it has not."""
    found = _unfinished_part(path)
    if found is None:
        return None
    return CorruptCheckpointError(
        "Orbax has not finished writing this directory: its save is running, or was killed",
        file=path,
        expected="a directory that Orbax has given its final name, with all of its files",
        found=found,
        remedy="use another step, or save it again; if it was copied, copy all of it",
    )


def has_file(path: str, name: str) -> bool:
    """Whether a directory has a file of this name."""
    return os.path.isfile(os.path.join(path, name))


def directories_in(path: str) -> list[str]:
    """The names of the directories in a directory. An empty list if it cannot be listed."""
    with contextlib.suppress(OSError, ValueError):  # it is not a directory, or the text is not a path
        return sorted(name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name)))
    return []


def read_json(path: str) -> Any:
    """What a file in JSON says.

    Raises:
        CorruptCheckpointError: It cannot be read, or is not JSON.
    """
    try:
        with closing(DEFAULT_STORAGE.open(path)) as file:
            return parse_json(file.read(0, min(file.size, LONGEST + 1)), "a file of Orbax")
    except MilepostError as error:
        raise error.with_context(file=path) from None


def _unfinished_part(path: str) -> str | None:
    """What shows that Orbax has not finished a directory, or None if nothing does.

    A save writes into a directory with a temporary name, and renames it. Orbax restores a step without the time of its commit in
    `STEP`, so this time shows nothing.
    """
    name = os.path.basename(os.path.normpath(path))
    if UNFINISHED in name:
        return f"the temporary directory {name!r:.80}"
    if not has_file(path, STEP):
        return _unfinished_item(path)
    for inside in [] if is_item(path) else directories_in(path):
        if UNFINISHED in inside:
            return f"the temporary directory {inside!r:.80} in it"
        if (item := _unfinished_item(os.path.join(path, inside))) is not None:
            return f"{item} in {inside!r:.80}"
    return _unfinished_item(path)


def _unfinished_item(path: str) -> str | None:
    """What shows that an item has arrays and was not finished, or None if nothing does."""
    if is_item(path) or not (has_file(path, _MANIFEST) or os.path.isdir(os.path.join(path, DESCRIBED))):
        return None
    return f"arrays without {TREE}"


def _steps(path: str) -> list[str]:
    """The names of the steps in a manager's directory, in the order of their numbers."""
    steps = [
        name
        for name in directories_in(path)
        if (is_item(inside := os.path.join(path, name)) or is_step(inside)) and _unfinished_part(inside) is None
    ]
    return sorted(steps, key=lambda name: (len(name), name))


def has_aggregated(path: str) -> bool:
    """Whether the file `checkpoint` of a directory is a map in MessagePack, and so not a state file."""
    with contextlib.suppress(MilepostError), closing(DEFAULT_STORAGE.open(os.path.join(path, AGGREGATED))) as file:
        return file.read(0, min(file.size, 1)) in MAP_BEGINNINGS
    return False
