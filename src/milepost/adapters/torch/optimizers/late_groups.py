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


class _Watch:
    """Replaces `torch.optim.Optimizer.add_param_group` while groups of optimizers wait for others."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakSet[Any] = weakref.WeakSet()
        """The groups of the optimizers that wait, as `milepost.adapters.torch.optimizers.param_groups.ParamGroups`."""
        self._replaced: Callable[..., Any] | None = None
        self._installed: Callable[..., Any] | None = None

    def begin(self, groups: Any) -> None:
        self._waiting.add(groups)
        if self._replaced is None:
            self._replaced = torch.optim.Optimizer.add_param_group
            torch.optim.Optimizer.add_param_group = self._installed = self._watched(self._replaced)

    def _watched(self, add: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(add)
        def add_param_group(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
            count = len(optimizer.__dict__.get("param_groups", ()))
            add(optimizer, *arguments, **keywords)
            try:
                self._look_again()
            except BaseException:
                del optimizer.param_groups[count:]
                raise

        hidden: Callable[..., None] = hide_from_compilers(add_param_group)
        return hidden

    def _look_again(self) -> None:
        for groups in list(self._waiting):  # an optimizer may share its groups with one inside it
            look_again(groups)
            if not deferred_on(groups):
                self._waiting.discard(groups)
        if self._replaced and not self._waiting and torch.optim.Optimizer.add_param_group is self._installed:
            torch.optim.Optimizer.add_param_group = self._replaced
            self._replaced = None


_watch: Final = _Watch()


def watch_groups(groups: Any) -> None:
    """Restores the deferred hyperparameters of each group that an optimizer gets, until none are deferred.

    Args:
        groups: The groups of the optimizer.
    """
    _watch.begin(groups)
