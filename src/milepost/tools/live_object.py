"""The live object that a user names as ``MODULE:OBJECT``, as a `Checkpoint`."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import milepost
from milepost.errors import MilepostError, UnsupportedError
from milepost.graph.adapter import adapter_of


def checkpoint_named(name: str) -> milepost.Checkpoint:
    """Imports a module and makes a `Checkpoint` of one of its objects.

    Args:
        name: ``MODULE:OBJECT``. The module is found as Python finds it, from the current directory too. The object is a `Checkpoint`, a
            `CheckpointManager`, a model or other trackable object, a dict of such objects, or a function without arguments that returns one.
            What it prints goes to the error output.

    Raises:
        UnsupportedError: There is no such object, or it, or its module, raises an error.
    """
    module_name, _, path = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with contextlib.redirect_stdout(sys.stderr):
        with _explained(f"importing the module {module_name!r}"):
            value: Any = importlib.import_module(module_name)
        for part in path.split("."):
            if not hasattr(value, part):
                raise UnsupportedError(
                    f"the module {module_name!r} has no object of this name",
                    key=path,
                    file=getattr(sys.modules[module_name], "__file__", None),
                    remedy="pass the name of an object of the module, or of a function without arguments that makes one",
                )
            value = getattr(value, part)
        if not _is_accepted(value) and callable(value):
            with _explained(f"calling {name}"):
                value = value()
            if inspect.iscoroutine(value):
                value.close()  # otherwise Python warns that nothing awaited it, beside the error
        with _explained(f"making a Checkpoint of what {name} is"):
            return _as_checkpoint(value, name)


def _is_accepted(value: Any) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, (milepost.CheckpointManager, Mapping)) or adapter_of(value) is not None


def _as_checkpoint(value: Any, name: str) -> milepost.Checkpoint:
    if isinstance(value, milepost.CheckpointManager):
        value = value.checkpoint
    if isinstance(value, milepost.Checkpoint):
        return value
    if isinstance(value, Mapping):
        return milepost.Checkpoint(**value)
    if adapter_of(value) is None:
        raise UnsupportedError(
            "this object cannot be restored",
            key=name,
            expected="a milepost.Checkpoint, a CheckpointManager, a model or another trackable object, a dict of such objects, or a function "
            "without arguments that returns one",
            found=f"an object of type {type(value).__module__}.{type(value).__qualname__}",
            remedy="name a function of your module that makes the Checkpoint as your program does",
        )
    return milepost.Checkpoint(value)


@contextlib.contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Makes one of milepost's errors of whatever code of the user raises."""
    try:
        yield
    except MilepostError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own_filenames = (__file__, importlib.__file__, "<")
        last = next((frame for frame in reversed(frames) if not frame.filename.startswith(own_filenames)), None)
        raise UnsupportedError(
            f"{doing} raised {type(error).__name__}: {error}",
            file=None if last is None else f"{last.filename}, line {last.lineno}",
            remedy="name a module that is installed, or go to the directory that it is in"
            if last is None and isinstance(error, ModuleNotFoundError)
            else "run python in this directory, and do the same there to see all of what is raised",
        ) from error
