"""Options of saving and restoring."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np

from milepost.coordination import Coordinator
from milepost.engine.arguments import is_whole_number, wrong
from milepost.engine.cast_on_save import CastOnSave
from milepost.engine.progress import Progress, check_progress
from milepost.engine.sharding import ShardingPolicy, sharding_policy
from milepost.engine.translation import Translation
from milepost.errors import UnsupportedError, UntrackableError
from milepost.graph.description import shown
from milepost.storage import Storage
from milepost.storage.checked import checked

DEFAULT_ALIGNMENT: Final = 64
"""The default alignment, in bytes. It is the size of a cache line, and enough for NumPy, XLA and SIMD instructions to
use an array mapped from a file."""


@dataclass(slots=True)
class CheckpointOptions:
    """Options of a save or a restore, or of every save and restore of a `CheckpointManager`.

    Options can be changed after they are made. Each save and restore takes a copy when it is called. A
    ``tf.train.CheckpointOptions`` is accepted wherever a `CheckpointOptions` is; its ``experimental_io_device`` has no effect, since
    milepost reads and writes files in this process.

    Each attribute says whether it is for saves or for restores; the other ignores it.

    Attributes:
        experimental_enable_async_checkpoint: Saves. TensorFlow's earlier name of ``enable_async``, accepted for
            compatibility.
        experimental_write_callbacks: Saves. Functions that take no argument or the path, called in order after each
            save.
        enable_async: Saves. Save asynchronously: copy the values, return, and write the copies on another thread.
            Errors are raised by the next call or by ``sync()``. A process that ends waits for the write. The memory of the
            copies is kept for the next asynchronous save of the same `Checkpoint`. A synchronous save gives it back.
        experimental_skip_slot_variables: Restores. Do not restore slot variables, and do not count them in assertions.
        experimental_sharding_callback: Saves. How to divide a save into data files; by default there is one for
            each process. TensorFlow's ``MaxShardSizePolicy`` becomes milepost's, and its ``ShardByTaskPolicy`` the default.
        data_alignment: Saves. Each tensor begins at a multiple of this many bytes, a power of two. With 1, files are byte for byte
            those that TensorFlow writes, unless the save is incremental.
        strict: Saves. Raise an error instead of a warning if the save leaves out something that may be left out on
            purpose, such as a module in a set.
        allow_unsaved: Both. Paths from the root, such as ``"net/scale"``. The objects at these paths, and all objects
            below them, may be left out. If a save would leave out anything else that the object's framework saves, it
            raises an error. A restore reports such live values as missing. A save warns of a path that no object has.
        overwrite: Saves. Let a numbered save replace a checkpoint that this `Checkpoint` neither saved nor restored.
        legacy_keras_optimizers: Saves. Save the state of Keras 3 optimizers a second time, as slot variables and
            hyperparameters. Optimizers of Keras 2 before 2.11 (``tf_keras.optimizers.legacy``) restore these.
            Optimizers of Keras 2.11 and later refuse such files.
        storage: Both. Where the files are; by default on this machine.
        process_local: Both. Save and restore in this process alone, even if it is one of several that are connected.
            Each process must then use its own paths.
        coordinator: Both. How the processes of a program exchange messages, which save and restore together: a
            `milepost.coordination.Coordinator`. By default it is found: `torch.distributed`, `jax.distributed` or MPI, if they connect
            several processes.
        process_timeout: Both. Seconds after which another process that neither answers nor shows progress counts as lost,
            so that the save or restore fails on all others; and seconds after which a save or restore that waits for one of the same
            objects in another thread fails.
        each_process: Saves of several processes. Paths from the root of objects of which every process saves its own
            values. Generators of random numbers and iterators over data need not be named.
        first_process: Saves of several processes. Paths from the root of objects whose values process 0 alone saves.
            The values of the other processes may differ and are not saved. A restore gives the values of process 0 to
            all processes.
        progress: Both. A function that is told how far a save or restore is, as a `milepost.Progress`: at the beginning, at most ten
            times a second, and when all is saved or restored. It is called on the thread that does the work: for an
            asynchronous save, that is a thread of milepost's. Each process is told of its own part. An error of the
            function becomes a warning, except KeyboardInterrupt. True shows a progress bar on a terminal and in a
            notebook, and elsewhere a line every ten seconds; it needs ``pip install milepost[progress]``.
        incremental: Saves. Do not write tensors that have not changed since the previous checkpoint in the same
            directory; make hard links to the data files that hold them. Each checkpoint remains complete by itself. If
            files cannot be linked, everything is written, and a warning says why. The page ``docs/incremental.md`` has
            the rules.
        cast: Saves. The element type as which floating-point numbers are saved, such as ``"bfloat16"``; or a dict of element types by
            names, such as ``{"model": "bfloat16"}``, in which a name stands for everything below it and ``*`` for any text, and the longest
            name that fits is used. Numbers that are no arrays, and values that are still deferred, keep their types. A finite number that the type cannot
            hold fails the save. To restore such a checkpoint into objects of the original type, pass ``cast=True``.
        only: Saves. Names of live objects, as for `Checkpoint.restore`: a name or a list of names, each of which includes everything below it; ``*``
            stands for any text. Everything else is left out, except for the ``save_counter``. What is left out is not read, and the checkpoint
            says that it was left out. Slot variables are saved with their optimizer, not with their variable. A name that names nothing
            fails the save. A restore with these options does not count what the save has left out.
        ignore: Saves. Names of live objects to leave out, likewise. A slot variable is left out with its variable, and with the
            whole optimizer.
        base: Saves. Leave out what is frozen, because something else has it, such as pretrained weights that the program loads before it
            restores. This text names that: a path, a URL, or any name. The checkpoint has it, and a digest of each value that is left out.
            A restore computes the digests of the live values, and changes nothing if one differs. ``docs/partial.md`` says what this costs.
        frozen: Saves. What ``base`` has: names, as for ``only``, or a function of the path and the live object that says whether
            it is frozen. By default, parameters of PyTorch that require no gradient, and variables of Keras that could be trained and are not
            to be. Buffers and statistics are saved.
        verify_first: Restores. Verify all values before an object changes, so that a damaged checkpoint changes nothing. Large
            values that replace old ones are read twice for this. With False, each is read once, straight into the memory of its
            object, and verified meanwhile. If the checkpoint is damaged, some objects then have restored values and
            others their old ones, and the error says so. Values of files of other libraries are verified right before they are read.

    Raises:
        UntrackableError: A ``ValueError``: a write callback is not a function, or takes more arguments than the path.
        UnsupportedError: Another option has a type or value that is not accepted.

    Example:
        >>> CheckpointOptions(enable_async=True)
        CheckpointOptions(enable_async=True)
        >>> CheckpointOptions(experimental_enable_async_checkpoint=True).is_async
        True
    """

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
    coordinator: Coordinator | None = None
    process_timeout: float = 300.0
    each_process: Sequence[str] = ()
    first_process: Sequence[str] = ()
    progress: bool | Callable[[Progress], Any] = False
    incremental: bool = False
    cast: Any = None
    verify_first: bool = True
    only: str | Sequence[str] | None = None
    ignore: str | Sequence[str] = ()
    base: str | os.PathLike[str] | None = None
    frozen: str | Sequence[str] | Callable[[str, Any], Any] | None = None

    def __post_init__(self) -> None:
        self.experimental_sharding_callback = sharding_policy(self.experimental_sharding_callback)
        _ = self.write_callbacks
        if isinstance(self.base, os.PathLike):
            self.base = os.fspath(self.base)
        _check(self)

    def __repr__(self) -> str:
        changed = [
            f"{option.name}={shown(value)}"
            for option in fields(self)
            if (value := getattr(self, option.name, option.default)) != option.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __copy__(self) -> Self:
        """A copy that shares no list with its original."""
        copied = object.__new__(type(self))
        values = {each.name: getattr(self, each.name) for each in fields(self) if hasattr(self, each.name)}
        for name, value in (values | getattr(self, "__dict__", {})).items():
            setattr(copied, name, copy(value) if type(value) in (list, set, dict) else value)
        return copied

    @property
    def is_async(self) -> bool:
        """Whether saves are asynchronous, by either name of the option."""
        return self.enable_async or self.experimental_enable_async_checkpoint

    @property
    def write_callbacks(self) -> list[Callable[[str], object]]:
        """The write callbacks as functions of the path."""
        callbacks = self.experimental_write_callbacks or ()
        if not isinstance(callbacks, Iterable) or isinstance(callbacks, (str, bytes)):
            raise UntrackableError(
                "write callbacks are a list of functions",
                key="experimental_write_callbacks",
                expected="a list of functions of no argument, or of the path",
                found=f"{callbacks!r:.80} of type {type(callbacks).__name__}",
                remedy="put it into a list, as in [function]",
            )
        return [_of_path(callback) for callback in callbacks]


_OF_SAVES: Final = frozenset(
    {
        *("enable_async", "experimental_enable_async_checkpoint", "experimental_write_callbacks", "incremental"),
        *("experimental_sharding_callback", "data_alignment", "strict", "overwrite", "legacy_keras_optimizers"),
        *("each_process", "first_process", "cast", "only", "ignore", "base", "frozen"),
    }
)
"""The options that restores ignore."""
_OF_RESTORES: Final = frozenset({"experimental_skip_slot_variables", "verify_first"})
"""The options that saves ignore."""
_OTHER_NAMES: Final = {
    **dict.fromkeys(
        (
            *("file_prefix", "save_path", "filepath", "prefix", "checkpoint_prefix", "ckpt_dir_or_file"),
            *("checkpoint_dir", "save_dir", "source"),
        ),
        "path",
    ),
    "checkpoint_prefixes": "paths",
}
"""What the arguments are called that have other names in TensorFlow, or that programs are used to call otherwise."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_options(of: Literal["save", "restore"] | None = None) -> Callable[[_Function], _Function]:
    """Lets a function say how an option is passed, if it is called with one as a keyword argument, and what an argument is called now.

    The error is Python's `TypeError`, as for every argument that a function does not have.

    Args:
        of: What the function does. The options of the other are not offered.

    Example:
        >>> @takes_options("restore")
        ... def restore(path, options=None):
        ...     return path
        >>> restore("run/ckpt-1", progress=True)
        Traceback (most recent call last):
        TypeError: restore() got an unexpected keyword argument 'progress': it is an option, so pass options=milepost.CheckpointOptions(progress=True)
        >>> restore(save_path="run/ckpt-1")
        Traceback (most recent call last):
        TypeError: restore() got an unexpected keyword argument 'save_path': pass path='run/ckpt-1'
    """
    ignored = {"save": _OF_RESTORES, "restore": _OF_SAVES}.get(of or "", frozenset())

    def decorate(function: _Function) -> _Function:
        parameters = inspect.signature(function).parameters
        options = {each.name for each in fields(CheckpointOptions)}

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs.keys() - parameters.keys():
                remedy = ""
                if _OTHER_NAMES.get(name) in parameters:
                    remedy = f"pass {_OTHER_NAMES[name]}={shown(kwargs[name], 80)}"
                elif name in options:
                    argument = f"options=milepost.CheckpointOptions({name}={shown(kwargs[name], 80)})"
                    destination = "" if "options" in parameters else " to the manager when it is made"
                    remedy = f"it is an option, so pass {argument}{destination}"
                    if name in ignored:
                        remedy = f"it is an option of {'restores' if of == 'save' else 'saves'} alone"
                        if name == "strict":
                            remedy += (
                                "; for PyTorch's strict=True, call assert_consumed() on the status that is returned"
                            )
                if remedy:
                    raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}: {remedy}")
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]  # it has the signature of what it wraps

    return decorate


_SWITCHES: Final = tuple(each.name for each in fields(CheckpointOptions) if each.type == "bool")
_PATHS: Final = ("allow_unsaved", "each_process", "first_process")
_COORDINATOR_MEMBERS: Final = ("rank", "size", "library", "post", "wait", "clear")
_STORAGE_METHODS: Final = tuple(name for name in vars(Storage) if not name.startswith("_"))


def _check(options: CheckpointOptions) -> None:
    for name in _SWITCHES:
        value = getattr(options, name)
        if not (value is None or isinstance(value, (bool, int, np.bool_))):
            raise wrong(name, value, "True or False")
    alignment = options.data_alignment
    if not is_whole_number(alignment) or alignment < 1 or alignment & (alignment - 1):
        raise wrong("data_alignment", alignment, "a power of two, such as 64, or 1")
    for name in _PATHS:
        paths = getattr(options, name)
        if isinstance(paths, (str, bytes)):
            raise wrong(name, paths, "a list of paths", f"pass [{paths!r}]")
        if wrong_path := [each for each in paths or () if not isinstance(each, str)]:
            raise wrong(name, wrong_path[0], "a list of paths, each of which is text")
    if options.cast is not None:
        CastOnSave(options.cast)
    _check_part(options)
    seconds = options.process_timeout
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise wrong("process_timeout", seconds, "a number of seconds greater than 0")
    check_progress(options.progress)
    coordinator = options.coordinator
    if coordinator is not None:
        lacking = [name for name in _COORDINATOR_MEMBERS if not hasattr(coordinator, name)]
        if lacking or isinstance(coordinator, type):
            raise wrong("coordinator", coordinator, "an object with the members of milepost.coordination.Coordinator")
    storage = options.storage
    if storage is not None:
        lacking = [name for name in _STORAGE_METHODS if not callable(getattr(storage, name, None))]
        if lacking or isinstance(storage, type):
            expected = "an object with the methods of milepost.storage.Storage"
            remedy = f"add {', '.join(lacking)}()" if 0 < len(lacking) < len(_STORAGE_METHODS) else None
            raise wrong("storage", storage, expected, remedy)


def _check_part(options: CheckpointOptions) -> None:
    if options.only is not None and not options.only:
        raise wrong("only", options.only, "a name, or a list of names, in which * stands for any text")
    Translation(only=options.only, ignore=options.ignore or ())
    if options.base is not None and not (isinstance(options.base, str) and options.base):
        raise wrong("base", options.base, "a text, such as the path or the URL of the weights")
    if options.frozen is not None:
        if options.base is None:
            raise wrong(
                "frozen",
                options.frozen,
                "no names without a base",
                "pass base=... too, which names what has these values",
            )
        if not callable(options.frozen):
            Translation(ignore=options.frozen)


_DEFAULTS: Final = CheckpointOptions()


def resolved(options: Any) -> CheckpointOptions:
    """A copy of the options of one call, so that later changes of the given options have no effect on it.

    Args:
        options: A `CheckpointOptions`, a ``tf.train.CheckpointOptions``, or None for the defaults.

    Returns:
        A new object, whose write callbacks are functions of the path.

    Raises:
        UnsupportedError: The object holds no options, or its sharding callback is not one that milepost accepts.
        UntrackableError: A write callback takes more arguments than the path.

    Example:
        >>> resolved(None).is_async
        False
    """
    if options is None:
        return copy(_DEFAULTS)
    if isinstance(options, CheckpointOptions):
        return replace(copy(options), experimental_write_callbacks=options.write_callbacks or None)
    values = {
        option.name: getattr(options, option.name)
        for option in fields(CheckpointOptions)
        if hasattr(options, option.name)
    }
    if not values or isinstance(options, type):
        raise UnsupportedError(
            "these are not options",
            expected="a milepost.CheckpointOptions, or a tf.train.CheckpointOptions",
            found=f"the class {options.__name__}"
            if isinstance(options, type)
            else f"an object of type {type(options).__name__}",
            remedy="write options=milepost.CheckpointOptions(...)",
        )
    return resolved(CheckpointOptions(**values))


def selection_of(options: CheckpointOptions) -> Translation | None:
    """What the options of a save select of the live objects; None if it is everything.

    Example:
        >>> selection_of(CheckpointOptions(ignore="head")).leaves_alone("head/bias")
        True
    """
    if options.only is None and not options.ignore and options.base is None:
        return None
    return Translation(only=options.only, ignore=options.ignore or ())


def storage_of(options: Any) -> Storage:
    """The storage that the options of a call name, or that of this machine.

    Args:
        options: A `CheckpointOptions`, a ``tf.train.CheckpointOptions``, which names none, or None.

    Example:
        >>> from milepost.storage.default import DEFAULT_STORAGE
        >>> storage_of(None) is DEFAULT_STORAGE
        True
    """
    return checked(getattr(options, "storage", None))


def _of_path(callback: Callable[..., object]) -> Callable[[str], object]:
    if not callable(callback):
        raise UntrackableError(
            "a write callback is a function",
            key="experimental_write_callbacks",
            expected="a function of no argument, or of the path",
            found=f"{callback!r:.80} of type {type(callback).__name__}",
            remedy="pass a list of functions, without calling them: [function], not [function()]",
        )
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):
        return callback  # A function in C may not tell its arguments.
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
