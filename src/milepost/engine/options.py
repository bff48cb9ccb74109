"""Options of saving and restoring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from milepost.engine.arguments import is_whole_number, wrong
from milepost.engine.sharding import ShardingPolicy, sharding_policy
from milepost.errors import UnsupportedError, UntrackableError
from milepost.storage import Storage

DEFAULT_ALIGNMENT: Final = 64
"""Bytes. A cache line, and what NumPy, XLA and SIMD loads ask of an array that is mapped from a file."""


@dataclass(slots=True)
class CheckpointOptions:
    """Options of a save or a restore, or of every save and restore of a `CheckpointManager`.

    Options can be changed after they are made. Each save and restore takes a copy when it is called. A
    ``tf.train.CheckpointOptions`` is accepted wherever a `CheckpointOptions` is.

    Each attribute says whether it is for saves or for restores; the other ignores it.

    Attributes:
        experimental_io_device: No effect. TensorFlow uses it to choose the machine that reads and writes the files;
            milepost always reads and writes them in this process. It is accepted so that TensorFlow's options can be
            passed.
        experimental_enable_async_checkpoint: Saves. TensorFlow's earlier name of ``enable_async``, accepted for
            compatibility.
        experimental_write_callbacks: Saves. Functions that take no argument or the path, called in order after each
            save.
        enable_async: Saves. Save asynchronously: copy the values, return, and write the copies on another thread.
            Errors are raised by the next call or by ``sync()``. A process that ends waits for the write.
        experimental_skip_slot_variables: Restores. Leave out slot variables, in assertions too.
        experimental_sharding_callback: Saves. How to divide a save into data files; by default there is one.
            TensorFlow's ``MaxShardSizePolicy`` and ``ShardByTaskPolicy`` become milepost's of the same names.
        data_alignment: Saves. Each tensor begins at a multiple of this many bytes, a power of two. With 1, files are byte for byte
            those that TensorFlow writes.
        strict: Saves. Raise an error where a save only warns: where it leaves out something that may be left out on
            purpose, such as a module in a set.
        allow_unsaved: Both. Paths from the root, such as ``"net/scale"``, of what may be left out, with all that is
            below them. Where a save would leave out anything else that the object's framework saves, it raises an
            error, and a restore reports such live values as missing.
        overwrite: Saves. Let a numbered save replace a checkpoint that this `Checkpoint` neither saved nor restored.
        legacy_keras_optimizers: Saves. Save the state of Keras 3 optimizers a second time, as slot variables and
            hyperparameters. Optimizers of Keras 2 before 2.11 (``tf_keras.optimizers.legacy``) restore these.
            Optimizers of Keras 2.11 and later refuse such files.
        storage: Both. Where the files are; by default on this machine.
        process_local: Saves. Declare that no other process saves to this path, for example because each has its own
            disk. Otherwise, where `torch.distributed` or `jax.distributed` connects several processes, the first
            process that saves to a path owns it, and saves of the others to that path raise an error.

    Raises:
        UntrackableError: A ``ValueError``: a write callback is not a function, or takes more arguments than the path.
        UnsupportedError: Another option has a type or value that is not accepted.

    Example:
        >>> CheckpointOptions(enable_async=True)
        CheckpointOptions(enable_async=True)
        >>> CheckpointOptions(experimental_enable_async_checkpoint=True).is_async
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
        _check(self)

    def __repr__(self) -> str:
        changed = [
            f"{each.name}={value!r:.200}"
            for each in fields(self)
            if (value := getattr(self, each.name, each.default)) != each.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def is_async(self) -> bool:
        """Whether saves are asynchronous, by either name of the option."""
        return self.enable_async or self.experimental_enable_async_checkpoint

    @property
    def write_callbacks(self) -> list[Callable[[str], object]]:
        """The write callbacks as functions of the path."""
        return [_of_path(callback) for callback in self.experimental_write_callbacks or ()]


_SWITCHES: Final = tuple(each.name for each in fields(CheckpointOptions) if each.type == "bool")
_STORAGE_METHODS: Final = tuple(name for name in vars(Storage) if not name.startswith("_"))


def _check(options: CheckpointOptions) -> None:
    for name in _SWITCHES:
        value = getattr(options, name)
        if not (value is None or isinstance(value, (bool, int, np.bool_))):
            raise wrong(name, value, "True or False")
    alignment = options.data_alignment
    if not is_whole_number(alignment) or alignment < 1 or alignment & (alignment - 1):
        raise wrong("data_alignment", alignment, "a power of two, such as 64, or 1")
    allowed = options.allow_unsaved
    if isinstance(allowed, (str, bytes)):
        raise wrong("allow_unsaved", allowed, "a list of paths", f"pass [{allowed!r}]")
    if wrong_path := [each for each in allowed or () if not isinstance(each, str)]:
        raise wrong("allow_unsaved", wrong_path[0], "a list of paths, each of which is text")
    storage = options.storage
    if storage is not None:
        lacking = [name for name in _STORAGE_METHODS if not callable(getattr(storage, name, None))]
        if lacking or isinstance(storage, type):
            expected = "an object with the methods of milepost.storage.Storage"
            remedy = f"add {', '.join(lacking)}()" if 0 < len(lacking) < len(_STORAGE_METHODS) else None
            raise wrong("storage", storage, expected, remedy)


_DEFAULTS: Final = CheckpointOptions()


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
        return copy(_DEFAULTS)
    if isinstance(options, CheckpointOptions):
        callbacks = options.experimental_write_callbacks
        return replace(options, experimental_write_callbacks=list(callbacks) if callbacks else None)
    given = {
        each.name: getattr(options, each.name) for each in fields(CheckpointOptions) if hasattr(options, each.name)
    }
    if not given or isinstance(options, type):
        raise UnsupportedError(
            "these are not options",
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
