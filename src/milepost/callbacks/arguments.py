"""Arguments of ``fit()`` that Keras passes over when its data is one of milepost's, which are refused before training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.errors import UnsupportedError


def refuse_arguments(given: Mapping[str, Any], is_shuffled: bool) -> None:
    """Refuses what has no effect beside wrapped data.

    Args:
        given: What ``fit()`` was given.
        is_shuffled: Whether the wrapped data is shuffled by `resumable`.

    Raises:
        UnsupportedError: There is such an argument.
    """
    ignored = [name for name in ("y", "sample_weight", "class_weight", "batch_size") if given.get(name) is not None]
    if given.get("validation_split"):
        ignored.append("validation_split")
    if is_shuffled and given.get("shuffle") is False:
        ignored.append("shuffle")
    if not ignored:
        return
    there = {"validation_split": "pass validation_data to fit()"}
    moved = [f"{name}=" for name in ignored if name not in there]
    remedies = [f"pass {', '.join(moved)} to resumable()"] if moved else []
    if "batch_size" in ignored and given.get("validation_data") is not None:
        remedies.append("validation_batch_size= to fit()")
    remedies += [there[name] for name in ignored if name in there]
    raise UnsupportedError(
        "fit() would ignore these arguments for data from resumable(); nothing was trained",
        expected="fit(callback.resumable(...), callbacks=[callback])",
        found=", ".join(f"{name}=" for name in ignored),
        remedy=", and ".join(remedies),
    )


def refuse_other_data(given: Mapping[str, Any], returned: Any) -> None:
    """Refuses data that is not what `resumable` returned last.

    Args:
        given: What ``fit()`` was given.
        returned: What `resumable` returned, or None if it was not called.

    Raises:
        UnsupportedError: It is other data, or what another callback's `resumable` returned.
    """
    if "x" not in given or given["x"] is returned:
        return
    if returned is None and not getattr(type(given["x"]), "is_of_resumable", False):
        return
    raise UnsupportedError(
        "fit() was not given the data that resumable() of this callback returned; nothing was trained",
        expected="fit(callback.resumable(x, y), callbacks=[callback])",
        found=f"a {type(given['x']).__name__}"
        if returned is not None
        else "what another callback's resumable() returned",
        remedy="pass what this callback's resumable() returned last, or use a callback whose resumable() was not called",
    )
