"""Options of saving and restoring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from milepost.engine.sharding import ShardingPolicy
from milepost.storage import Storage

DEFAULT_ALIGNMENT: Final = 64
"""Bytes. A cache line, and what NumPy, XLA and SIMD loads ask of an array that is mapped from a file."""


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Options of one save or restore, or of all of a `CheckpointManager`'s.

    Attributes:
        experimental_io_device: Accepted for TensorFlow's sake; files are always read and written by this process.
        experimental_enable_async_checkpoint: The same as ``enable_async``.
        experimental_write_callbacks: Functions of no argument or of the path, called in order after each save.
        enable_async: Copy the values, return, and write them in the background. Errors come out at the next call or
            at ``sync()``; a process that ends waits for the write.
        experimental_skip_slot_variables: Leave out slot variables when restoring, and in assertions.
        experimental_sharding_callback: How to cut a save into data files; by default there is one.
        data_alignment: Bytes; each tensor begins at a multiple of it. 1 writes densely, byte for byte as TensorFlow.
        strict: Raise where a save would leave out something that holds trackable objects, rather than warn.
        overwrite: Let a numbered save replace a checkpoint that this one neither wrote nor restored.
        legacy_keras_optimizers: Save the state of Keras 3 optimizers also as slot variables and hyperparameters, which is
            what the optimizers of Keras 2 before 2.11 (``tf_keras.optimizers.legacy``) restore. Those of Keras 2.11 and
            later refuse such files.
        storage: Where files live; by default those of this machine.
        process_local: Say that this process alone saves to the path, as on a disk of its own machine. Otherwise, where
            `torch.distributed` or `jax.distributed` connects several processes, the first that saves to a path has it,
            and a save of another one there is refused.
    """

    experimental_io_device: str | None = None
    experimental_enable_async_checkpoint: bool = False
    experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None
    enable_async: bool = False
    experimental_skip_slot_variables: bool = False
    experimental_sharding_callback: ShardingPolicy | None = None
    data_alignment: int = DEFAULT_ALIGNMENT
    strict: bool = False
    overwrite: bool = False
    legacy_keras_optimizers: bool = False
    storage: Storage | None = None
    process_local: bool = False

    @property
    def is_async(self) -> bool:
        """Whether either name of the asynchronous option is set."""
        return self.enable_async or self.experimental_enable_async_checkpoint
