"""Restores the deferred values of an optimizer right before its next step.

A hook stays installed, because PyTorch's dict of hooks must not change while the hooks are called.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from milepost.adapters.torch.views import view_of
from milepost.deferred.rescan import look_again
from milepost.deferred.table import deferred_on


def watch_step(optimizer: Any, holder: Any) -> None:
    """Before each step, restores the deferred values of the children that an object has then, until nothing is deferred for it.

    Args:
        optimizer: The optimizer.
        holder: The optimizer, or a part of it.
    """
    holders: list[weakref.ref[Any]] = view_of(optimizer, "watched", list)
    if not any(each() is holder for each in holders):
        holders.append(weakref.ref(holder))
    before_step(optimizer, _look_again)


def has_hooks(optimizer: Any) -> bool:
    """Whether hooks can be installed. Wrappers often do not initialize what PyTorch's own class does."""
    return hasattr(optimizer, "_optimizer_step_pre_hooks")


def before_step(optimizer: Any, hook: Callable[..., None]) -> None:
    """Installs a hook, unless it is installed already or the optimizer has no hooks.

    Args:
        optimizer: The optimizer.
        hook: A function of a module, so that the optimizer can still be pickled.
    """
    if has_hooks(optimizer) and hook not in optimizer._optimizer_step_pre_hooks.values():
        optimizer.register_step_pre_hook(hook)


def _look_again(optimizer: Any, arguments: Any, keywords: Any) -> None:
    holders: list[weakref.ref[Any]] = view_of(optimizer, "watched", list)
    for reference in list(holders):
        holder = reference()
        if holder is not None:
            look_again(holder)
        if holder is None or not deferred_on(holder):
            holders.remove(reference)
