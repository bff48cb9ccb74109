"""Options of saving and restoring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from milepost.engine.sharding import ShardingPolicy, sharding_policy
from milepost.errors import UnsupportedError, UntrackableError
from milepost.storage import Storage

DEFAULT_ALIGNMENT: Final = 64
"""Bytes. A cache line, and what NumPy, XLA and SIMD loads ask of an array that is mapped from a file."""


@dataclass(slots=True)
class CheckpointOptions:
    """Options of one save or restore, or of all of a `CheckpointManager`'s.

    They may be changed. A save or restore goes by what they are when it is called, in the background too. Wherever
    options are taken, a ``tf.train.CheckpointOptions`` may be given too.

    Attributes:
        experimental_io_device: Accepted for TensorFlow's sake; files are always read and written by this process.
        experimental_enable_async_checkpoint: The same as ``enable_async``.
        experimental_write_callbacks: Functions of no argument or of the path, called in order after each save.
        enable_async: Copy the values, return, and write them in the background. Errors come out at the next call or
            at ``sync()``; a process that ends waits for the write.
        experimental_skip_slot_variables: Leave out slot variables when restoring, and in assertions.
        experimental_sharding_callback: How to cut a save into data files; by default there is one. Policies of
            ``tf.train.experimental`` become milepost's of the same name.
        data_alignment: Bytes; each tensor begins at a multiple of it. 1 writes densely, byte for byte as TensorFlow.
        strict: Raise also where a save only warns: of what it leaves out that may well be meant, such as a module in a set.
        allow_unsaved: Paths from the root, such as ``"net/scale"``, of what may be left out. Each stands for all that is
            below it too. Without it a save that cannot hold what the object's framework would have saved fails, and
            a restore counts such live values as missing.
        overwrite: Let a numbered save replace a checkpoint that this one neither wrote nor restored.
        legacy_keras_optimizers: Save the state of Keras 3 optimizers also as slot variables and hyperparameters, which is
            what the optimizers of Keras 2 before 2.11 (``tf_keras.optimizers.legacy``) restore. Those of Keras 2.11 and
            later refuse such files.
        storage: Where files live; by default those of this machine.
        process_local: Say that this process alone saves to the path, as on a disk of its own machine. Otherwise, where
            `torch.distributed` or `jax.distributed` connects several processes, the first that saves to a path has it,
            and a save of another one there is refused.

    Raises:
        UntrackableError: A ``ValueError``: a write callback takes more than the path, or is no function.
        UnsupportedError: The sharding callback is of a kind that milepost does not know.

    Example:
        >>> options = CheckpointOptions()
        >>> options.enable_async = True
        >>> options.is_async
        True
    """

    experimental_io_device: str | None = None
    experimental_enable_async_checkpoint: bool = False
    experimental_write_callbacks: Sequence[Callable[..., Any]] | None = None
    enable_async: bool = False
    experimental_skip_slot_variables: bool = False
    experimental_sharding_callback: ShardingPolicy | None = None
    data_alignment: int = DEFAULT_ALIGNMENT
    strict: bool = False
    allow_unsaved: Sequence[str] = ()
    overwrite: bool = False
    legacy_keras_optimizers: bool = False
    storage: Storage | None = None
    process_local: bool = False

    def __post_init__(self) -> None:
        self.experimental_sharding_callback = sharding_policy(self.experimental_sharding_callback)
        _ = self.write_callbacks

    def __repr__(self) -> str:
        changed = [
            f"{each.name}={value!r:.200}"
            for each in fields(self)
            if (value := getattr(self, each.name, each.default)) != each.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def is_async(self) -> bool:
        """Whether either name of the asynchronous option is set."""
        return self.enable_async or self.experimental_enable_async_checkpoint

    @property
    def write_callbacks(self) -> list[Callable[[str], object]]:
        """The write callbacks as functions of the path."""
        return [_of_path(callback) for callback in self.experimental_write_callbacks or ()]


def resolved(options: Any) -> CheckpointOptions:
    """The options of one call, which later changes of those that were given do not reach.

    Args:
        options: A `CheckpointOptions`, a ``tf.train.CheckpointOptions``, or None for the defaults.

    Returns:
        A new object.

    Raises:
        UnsupportedError: They are no options, or name a sharding callback that milepost does not know.
        UntrackableError: A write callback takes more than the path.

    Example:
        >>> resolved(None).is_async
        False
    """
    if options is None:
        return CheckpointOptions()
    if isinstance(options, CheckpointOptions):
        callbacks = options.experimental_write_callbacks
        return replace(options, experimental_write_callbacks=list(callbacks) if callbacks else None)
    given = {
        each.name: getattr(options, each.name) for each in fields(CheckpointOptions) if hasattr(options, each.name)
    }
    if not given or isinstance(options, type):
        raise UnsupportedError(
            "these are no options",
            expected="a milepost.CheckpointOptions, or a tf.train.CheckpointOptions",
            found=f"the class {options.__name__}" if isinstance(options, type) else f"a {type(options).__name__}",
            remedy="write options=milepost.CheckpointOptions(...)",
        )
    return CheckpointOptions(**given)


def _of_path(callback: Callable[..., object]) -> Callable[[str], object]:
    if not callable(callback):
        raise UntrackableError(
            "a write callback is a function",
            key="experimental_write_callbacks",
            expected="a function of no argument, or of the path",
            found=f"{callback!r:.80} of type {type(callback).__name__}",
        )
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):
        return callback  # A function in C that does not tell its arguments.
    needed = [each for each in parameters if each.default is each.empty]
    count = sum(each.kind in kinds for each in needed)
    names = [each.name for each in needed if each.kind is each.KEYWORD_ONLY]
    if count > 1 or names:
        raise UntrackableError(
            "a write callback takes no argument, or the path",
            key="experimental_write_callbacks",
            expected="0 or 1 arguments",
            found=f"{count + len(names)} arguments of {getattr(callback, '__name__', callback)!s}",
            remedy="pass functools.partial(callback, ...) with the other arguments",
        )
    return callback if count else lambda _: callback()
