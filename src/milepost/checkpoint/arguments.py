"""What may be passed to `Checkpoint`: a root, and the objects to save."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Final

from milepost.errors import UntrackableError, UntrackedWarning, warn
from milepost.graph.adapter import adapter_of, adapter_of_type
from milepost.graph.containers import NoDependency
from milepost.graph.contract.operation import Operation
from milepost.graph.plain.values import PLAIN
from milepost.graph.remedies import remedy_for_state
from milepost.graph.traversal import live_children
from milepost.graph.trees.structure import is_empty_tree, is_functional, is_tuple

_COPIES: Final = (
    ("an optimizer", {"state", "param_groups"}),
    ("a schedule", {"last_epoch", "_last_lr"}),
    ("a scaler", {"scale", "_growth_tracker"}),
)
"""Keys by which the result of ``state_dict()`` of an object of PyTorch is recognised."""


def followed(root: Any) -> Any:
    """The root itself, if it was given as a weak reference.

    Raises:
        UntrackableError: The root no longer exists.
    """
    if not isinstance(root, weakref.ref):
        return root
    live = root()
    if live is None:
        raise UntrackableError(
            "the root no longer exists",
            key="root",
            remedy="keep a reference to the root for as long as the checkpoint is used",
        )
    return live


def check_root(live: Any) -> None:
    """Checks that an object can be the root.

    Raises:
        UntrackableError: It cannot be saved, or it is a tree of immutable arrays.
    """
    if adapter_of(live) is None:
        raise _not_trackable("root", live)
    if is_functional(live):
        raise UntrackableError(
            "a tree of immutable arrays cannot be the root: a restore would have no place to put the new arrays",
            key="root",
            found=f"an object of type {type(live).__name__}",
            remedy="pass it under a name, as in Checkpoint(state=tree), or use milepost.jax.save() and milepost.jax.restore()",
        )


def check_object(name: str, value: Any) -> None:
    """Checks that an object can be saved under a name.

    Raises:
        UntrackableError: It cannot be saved.
    """
    is_plain = type(value) in PLAIN or type(value) is NoDependency or is_tuple(type(value))
    if not is_plain and adapter_of(value) is None and not is_empty_tree(value):
        raise _not_trackable(name, value)


def warn_of_copy(name: str, value: Any) -> None:
    """Warns of the result of ``state_dict()`` of an optimizer, a schedule or a scaler of PyTorch.

    It is a copy with numbers of the time of the call. Later saves would save these numbers again, and not those of the live object.

    Args:
        name: The name of the argument.
        value: The argument, or a dict of several results.
    """
    if not isinstance(value, dict):
        return
    for path, candidate in [(name, value), *((f"{name}/{key}", candidate) for key, candidate in value.items())]:
        if isinstance(candidate, dict) and (
            what := next((what for what, keys in _COPIES if keys <= candidate.keys()), None)
        ):
            warn(
                f"{path} is what state_dict() of {what} returned. It is a copy, so saves will not have what changes later: pass "
                f"the object itself",
                UntrackedWarning,
            )


def check_clashes(root: Any, arguments: Iterable[str], values: Mapping[str, Any]) -> None:
    """Checks that no argument has the name of a child of the root, unless it is that child.

    Args:
        root: The live root.
        arguments: The names of the arguments.
        values: The arguments, by name.

    Raises:
        UntrackableError: An argument has such a name.
    """
    adapter = adapter_of(root)
    children = dict(live_children(Operation(root), adapter, root)) if adapter is not None else {}
    for name in arguments:
        if name in children and children[name] is not followed(values[name]):
            raise UntrackableError(
                f"root.{name} already exists and is a different object",
                key=name,
                expected="a name that the root does not use, or the same object",
                found=f"an object of type {type(children[name]).__name__} in the root, and one of type {type(values[name]).__name__} as the argument",
                remedy="pass the argument under another name",
            )


def _not_trackable(name: str, value: Any) -> UntrackableError:
    adapter = adapter_of_type(type(value))
    omission = adapter.omission(value) if adapter is not None else None
    remedy = omission.remedy if omission is not None else ""
    if not remedy:
        remedy = "pass it under a name, as in Checkpoint(epoch=3)" if type(value) in PLAIN else remedy_for_state(value)
    return UntrackableError(
        "an argument of Checkpoint is not trackable",
        key=name,
        expected="a Module, Variable, array, number, text, Checkpoint, framework object, or a list, dict or tuple of them",
        found=f"{value!r:.80} of type {type(value).__name__}",
        remedy=remedy,
    )
