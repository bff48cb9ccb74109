"""Restores the deferred hyperparameters of a parameter group when the group is added.

Later would be too late, because programs set hyperparameters, such as the learning rate of each step, from then on. PyTorch has no hook
for new groups. So `torch.optim.Optimizer.add_param_group` is another function as long as any optimizer waits for a group.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from milepost.adapters.torch.private import hide_from_compilers
from milepost.deferred.rescan import look_again
from milepost.deferred.table import deferred_on

_waiting: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""The groups of the optimizers that wait, as `milepost.adapters.torch.param_groups.ParamGroups`."""
_replaced: Final[list[Callable[..., Any]]] = []
"""The function that was replaced, and the one in its place."""


def watch_groups(groups: Any) -> None:
    """Restores the deferred hyperparameters of each group that an optimizer gets, until none are deferred.

    Args:
        groups: The groups of the optimizer.
    """
    _waiting.add(groups)
    if not _replaced:
        add = torch.optim.Optimizer.add_param_group
        _replaced.extend((add, _watched(add)))
        torch.optim.Optimizer.add_param_group = _replaced[1]


def _watched(add: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(add)
    def add_param_group(self: Any, *arguments: Any, **keywords: Any) -> None:
        count = len(self.__dict__.get("param_groups", ()))
        add(self, *arguments, **keywords)
        try:
            _look_again()
        except BaseException:
            del self.param_groups[count:]
            raise

    hidden: Callable[..., None] = hide_from_compilers(add_param_group)
    return hidden


def _look_again() -> None:
    for groups in list(_waiting):  # an optimizer may share its groups with one inside it
        look_again(groups)
        if not deferred_on(groups):
            _waiting.discard(groups)
    if _replaced and not _waiting and torch.optim.Optimizer.add_param_group is _replaced[1]:
        torch.optim.Optimizer.add_param_group = _replaced[0]
        _replaced.clear()
