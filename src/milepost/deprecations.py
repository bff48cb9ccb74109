"""Public names that are deprecated or gone: one table, and what happens when a program uses one.

A name that is deprecated works as before and warns. When its time is over, its entry stays without a value, and the name raises an
error that says what to write instead. `docs/versions.md` has the rule; `tests/test_deprecations.py` checks each entry against the version.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final, NamedTuple

from milepost.errors import warn


class FormerName(NamedTuple):
    """A public name that programs should no longer use.

    Args:
        instead: What to do, as an imperative: "write milepost.adapters.DType".
        gone: The first version without the name.
        since: The version that has deprecated it; None for what went before the first release, and without a warning.
        value: What the name stands for as long as it works, as "milepost.module:name"; None from the version `gone` on.
    """

    instead: str
    gone: str
    since: str | None = None
    value: str | None = None


def _before_releases(instead: str) -> FormerName:
    return FormerName(instead, "0.9.0")


FORMER_NAMES: Final[dict[str, FormerName]] = {
    "milepost.ShardByTaskPolicy": _before_releases("leave experimental_sharding_callback out, which does the same"),
    "milepost.DType": _before_releases("write milepost.adapters.DType"),
    **{
        f"milepost.{name}": _before_releases(f"write milepost.coordination.{name}")
        for name in ("Coordinator", "FileCoordinator")
    },
    **{
        f"milepost.{name}": _before_releases("restore() returns it; its public class is milepost.LoadStatus")
        for name in ("CheckpointLoadStatus", "InitializationOnlyStatus", "NameBasedStatus")
    },
    **{
        f"milepost.{name}": _before_releases("report() of the status of a restore has it")
        for name in ("Entry", "Outcome", "Report")
    },
    **{
        f"milepost.{name}": _before_releases(f"write milepost.tensorflow1.{name}")
        for name in ("checkpoint_exists", "get_checkpoint_mtimes", "remove_checkpoint", "update_checkpoint_state")
    },
    "milepost.to_state_dict": _before_releases('write milepost.load(path, separator=".")'),
    "milepost.CheckpointState": _before_releases("get_checkpoint_state() returns it"),
    "milepost.Conversion": _before_releases("convert() returns it"),
    "milepost.Drawing": _before_releases("draw_graph() returns it"),
}
"""The names, with the module that had them."""


def warn_of(name: str) -> None:
    """Issues the warning of a deprecated name, once for each line of the program that uses it.

    Args:
        name: A name of the table.

    Warns:
        DeprecationWarning: What to do instead, and which version has the name no longer.
    """
    former = FORMER_NAMES[name]
    warn(
        f"{name} is deprecated since milepost {former.since} and will be removed in {former.gone}; {former.instead}",
        DeprecationWarning,
    )


def attribute(module: str, name: str) -> Any:
    """What a module has under a former name. For the function `__getattr__` of the module, after its own names.

    Args:
        module: The module, as "milepost".
        name: The attribute that the program asks for.

    Returns:
        The value of a deprecated name.

    Warns:
        DeprecationWarning: The name is deprecated.

    Raises:
        AttributeError: The module has no such name, or no longer.

    Example:
        >>> attribute("milepost", "DType")
        Traceback (most recent call last):
        AttributeError: module 'milepost' has no attribute 'DType', which milepost 0.9.0 removed; write milepost.adapters.DType
    """
    former = FORMER_NAMES.get(f"{module}.{name}")
    if former is None or former.value is None:
        hint = f", which milepost {former.gone} removed; {former.instead}" if former else ""
        message = f"module {module!r} has no attribute {name!r}{hint}"
        raise AttributeError(message, name=name, obj=sys.modules[module])
    warn_of(f"{module}.{name}")
    owner, _, value = former.value.partition(":")
    return getattr(importlib.import_module(owner), value)
