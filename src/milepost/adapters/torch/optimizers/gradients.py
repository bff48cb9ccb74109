"""Gradients that no step has used yet, as between two batches whose gradients are accumulated.

PyTorch does not save gradients, and after a step they are not needed. So a save reports only gradients that were changed since the
last step of their optimizer. To know these, a hook runs after each step. It is installed when a `Checkpoint` gets the optimizer, or
by the first save. It notes facts about one gradient of each group: its identity, and how often it and its parameter were changed
in place.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch

from milepost.adapters.torch.distributed.local_shards import is_dtensor, local_of
from milepost.adapters.torch.optimizers.steps import has_hooks
from milepost.facts import Fact
from milepost.graph.omissions import Omission

_REMEDY: Final = "save after optimizer.step(), or drop them with optimizer.zero_grad(); a run that is resumed here continues without them"


class _StepMark(NamedTuple):
    gradient: int
    changed: int
    parameter_changed: int


_used: Final[Fact[list[_StepMark | None]]] = Fact()
_stepped: Final[Fact[bool]] = Fact()
"""The optimizers for which the hook has run."""


def mark_as_used(optimizer: Any) -> None:
    """Notes that the present gradients have been used, and installs the hook that does so after each step."""
    if not has_hooks(optimizer):
        return
    _used[optimizer] = _marks(optimizer)
    if _after_step not in optimizer._optimizer_step_post_hooks.values():
        optimizer.register_step_post_hook(_after_step)


def has_stepped(optimizer: Any) -> bool:
    """Whether an optimizer has made a step: it has state, or made the step when the hook was installed."""
    return bool(getattr(optimizer, "state", None)) or optimizer in _stepped


def is_watched(optimizer: Any) -> bool:
    """Whether the hook is installed for an optimizer."""
    return optimizer in _used


def unused_gradients(optimizer: Any) -> Omission | None:
    """Why a save now would lose gradients; None if it would not, or if the optimizer is not watched."""
    marks = _marks(optimizer)
    used = _used.get(optimizer)
    if used is None or len(used) != len(marks):
        return None
    changed = [
        group for group, now, then in zip(optimizer.param_groups, marks, used, strict=True) if _is_new(now, then)
    ]
    present = [each.grad for group in changed for each in group["params"] if each.grad is not None]
    lost = tuple(each for each in present if _here(each).detach().to_dense().any())
    if not lost:
        return None
    reason = f"the gradients of {len(lost)} parameters, which were changed since the optimizer's last step"
    return Omission(reason, _REMEDY, doubtful=True, parts=lost)


def _here(gradient: torch.Tensor) -> torch.Tensor:
    """What this process holds of a gradient. To ask for all of it would be a collective operation."""
    return local_of(gradient) if is_dtensor(gradient) else gradient


def _is_new(now: _StepMark | None, then: _StepMark | None) -> bool:
    """Whether a gradient was changed since the last step. If its parameter was changed too, a step without the hook has used it."""
    if now is None or (then is not None and now.parameter_changed != then.parameter_changed):
        return False
    return then is None or now[:2] != then[:2]


def _marks(optimizer: Any) -> list[_StepMark | None]:
    """For each group, the mark of its last gradient, or None."""
    marks: list[_StepMark | None] = []
    for group in optimizer.param_groups:
        last = next((each for each in reversed(list(group["params"])) if each.grad is not None), None)
        marks.append(None if last is None else _StepMark(id(last.grad), last.grad._version, last._version))
    return marks


def _after_step(optimizer: Any, arguments: Any, keywords: Any) -> None:
    if not torch.compiler.is_compiling():
        _stepped[optimizer] = True
        _used[optimizer] = _marks(optimizer)
