"""Restores that many tests of JAX's objects make."""

import milepost


def restored(path, **values):
    """A checkpoint of these values into which everything saved has been restored, and nothing else."""
    checkpoint = milepost.Checkpoint(**values)
    checkpoint.read(path).assert_consumed().assert_existing_objects_matched()
    return checkpoint
