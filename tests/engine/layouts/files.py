"""Checkpoints in memory for the tests of layouts."""

from __future__ import annotations

import milepost
from milepost.restoring.load import open_any
from milepost.storage import MemoryStorage


def saved(values):
    """Values in a checkpoint in memory, each by the names that lead to it: its path and the options that read it."""
    tree = {}
    for name, value in values.items():
        *above, last = name.split("/")
        level = tree
        for each in above:
            level = level.setdefault(each, {})
        level[last] = value
    options = milepost.CheckpointOptions(storage=MemoryStorage())
    return milepost.save("state", tree, options), options


def reader_of(values, convert=()):
    """An open checkpoint of values, with what steps make."""
    path, options = saved(values)
    return open_any(options.storage, path, convert)


def flat(values, options=None, **arguments):
    """All values of a checkpoint by name: of a path, or of new values."""
    path, own = saved(values) if options is None else (values, options)
    return milepost.load(path, own, separator="/", **arguments)
