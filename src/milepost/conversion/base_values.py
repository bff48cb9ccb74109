"""The values of a live model that a checkpoint lacks because its base has them, for a directory that holds all of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.checkpoint.short_names import name_of
from milepost.conversion.digest import digests_of_object
from milepost.engine.left_out import LeftOut
from milepost.engine.options import CheckpointOptions
from milepost.errors import MismatchError, UnsupportedError, UntrackableError


def levels_of(name: str) -> str:
    """A name of a value with ``/`` between its levels, as files of any kind and programs have it.

    Example:
        >>> levels_of("layers.0.weight")
        'layers/0/weight'
    """
    return name.replace(".", "/")


def values_of_base(
    model: Any, missing: Mapping[str, Any], left_out: LeftOut, root: str, file: str, settings: CheckpointOptions
) -> dict[str, Any]:
    """Those of the missing values that the base of the checkpoint has, from the live model, after they were compared with it.

    Args:
        model: The model, with its base.
        missing: By name, the live values of the model that the checkpoint lacks. One that has several names is one object.
        left_out: What the save has left out.
        root: The name of the model in the checkpoint.
        file: The path of the checkpoint.
        settings: The options of the caller.

    Raises:
        MismatchError: A value is another one than in the base.
        UnsupportedError: A value of the model has no elements, as on PyTorch's device ``meta``.
    """
    beginning = f"{levels_of(root)}/" if root else ""
    expected = {
        name[len(beginning) :]: digest
        for key, digest in left_out.digests.items()
        if (name := levels_of(name_of(key))).startswith(beginning)
    }
    known = {name: value for name, value in missing.items() if levels_of(name) in expected}
    if not known:
        return {}
    remedy = f"load the base {left_out.base!r} into the model before you export it"
    everything = replace(settings, ignore=(), only=None, base=None, frozen=None, cast=None)
    try:
        found = {levels_of(name_of(key)): digest for key, digest in digests_of_object(model, everything)}
    except (UnsupportedError, UntrackableError) as error:
        error.remedy = remedy
        raise
    for name in known:
        if found.get(levels_of(name)) != expected[levels_of(name)]:
            raise MismatchError(
                "the base of the model is another one than that with which the checkpoint was saved, so nothing was written",
                file=file,
                key=name,
                expected=f"the value of the base {left_out.base!r}",
                found="a value with another digest",
                remedy=remedy,
            )
    identities = {id(value) for value in known.values()}
    return {name: value for name, value in missing.items() if id(value) in identities}
