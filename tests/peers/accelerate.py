"""Accelerate: `save_state` and `load_state` of an `Accelerator`, done by `milepost.accelerate`."""

from __future__ import annotations

import os
from typing import Any

import milepost
import milepost.accelerate
from tests.peers.suite import Suite

_FILE = "state"
"""The name of a checkpoint in a directory that the program names."""

SUITE = Suite(
    title="Accelerate",
    packages=("accelerate", "torch", "safetensors"),
    copied={"tests/test_state_checkpointing.py": "tests/test_state_checkpointing.py"},
    files=("tests/test_state_checkpointing.py",),
    replaced=(
        "`save_state` and `load_state` save and restore the `Checkpoint` of `milepost.accelerate.checkpoint(accelerator)`; with automatic names, "
        "through a `milepost.CheckpointManager`. Its files have other names, so the tests find a link with Accelerate's name for each checkpoint. "
        "Each test is there twice, with and without safetensors, and milepost does the same in both."
    ),
    excluded={"*::test_invalid_registration": "It makes no checkpoint."},
)


class _Saver:
    """The checkpoint of one `Accelerator`, and its manager if checkpoints get automatic names."""

    def __init__(self, accelerator: Any) -> None:
        self.checkpoint = milepost.accelerate.checkpoint(accelerator)
        self.manager = None
        self.directory = ""
        if accelerator.project_configuration.automatic_checkpoint_naming:
            self.directory = os.path.join(accelerator.project_dir, "checkpoints")
            limit = accelerator.project_configuration.total_limit
            self.manager = milepost.CheckpointManager(
                self.checkpoint, self.directory, max_to_keep=limit, checkpoint_name="checkpoint"
            )


def _saver(accelerator: Any) -> _Saver:
    if not hasattr(accelerator, "_milepost"):
        accelerator._milepost = _Saver(accelerator)
    saver: _Saver = accelerator._milepost
    return saver


def _save_state(self: Any, output_dir: Any = None, safe_serialization: bool = True, **settings: Any) -> str:
    saver = _saver(self)
    if saver.manager is None:
        return saver.checkpoint.write(os.path.join(output_dir, _FILE))
    number = self.save_iteration
    path = saver.manager.save(number)
    assert path is not None
    os.symlink(os.path.basename(path) + ".index", os.path.join(saver.directory, f"checkpoint_{number}"))
    self.project_configuration.iteration += 1
    return path


def _load_state(self: Any, input_dir: Any = None, load_kwargs: Any = None, **settings: Any) -> None:
    saver = _saver(self)
    if saver.manager is None:
        saver.checkpoint.read(os.path.join(input_dir, _FILE)).assert_consumed()
    elif input_dir is None:
        saver.manager.restore_or_initialize()
    else:
        saver.manager.restore(int(str(input_dir).rpartition("_")[2])).assert_consumed()


def pytest_configure() -> None:
    """Puts milepost in the place of the library."""
    from accelerate import Accelerator

    Accelerator.save_state, Accelerator.load_state = _save_state, _load_state
