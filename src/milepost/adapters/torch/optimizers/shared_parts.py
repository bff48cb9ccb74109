"""Whether an optimizer's state has objects in several places that a checkpoint would write separately.

A tensor that is the state of several parameters is one slot variable. A tensor that is also in a list or dict, or that shares the
memory of another, stays shared only if the state is saved as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from milepost.adapters.optimizer_settings import NO_STATE
from milepost.adapters.torch.plain_tensors import overlapping
from milepost.plain_state.sharing import inside


def shares_between_parts(optimizer: Any) -> bool:
    """Whether an object is in several parts of an optimizer's state, in other places than as a slot variable."""
    slots: dict[int, Any] = {}
    others: list[Any] = []
    for state in optimizer.state.values():
        if type(state) is not dict:
            continue
        for value in state.values():
            if isinstance(value, torch.Tensor):
                slots[id(value)] = value
            elif inside(value) is not None:
                others.append(value)
    defaults = {id(value) for value in optimizer.defaults.values()}
    settings = {
        id(value): value
        for group in optimizer.param_groups
        for name, value in group.items()
        if name not in NO_STATE and name != "params" and id(value) not in defaults
    }
    known = set(slots)
    tensors = list(slots.values())
    for part in (*others, *settings.values()):
        objects = {id(each): each for each in _below(part)}
        if not known.isdisjoint(objects):
            return True
        known.update(objects)
        tensors.extend(each for each in objects.values() if isinstance(each, torch.Tensor))
    return bool(tensors) and _share_memory(tensors)


def _below(part: Any) -> Iterator[Any]:
    """All mutable objects in a part, itself included."""
    pending, seen = [part], set()
    while pending:
        value = pending.pop()
        within = inside(value)
        if within is not None and id(value) not in seen:
            seen.add(id(value))
            pending.extend(within)
        if isinstance(value, torch.Tensor) or (within is not None and not isinstance(value, (tuple, frozenset))):
            yield value


def _share_memory(tensors: list[Any]) -> bool:
    plain = [each for each in tensors if type(each) is torch.Tensor and each.layout is torch.strided]
    storages = {each.untyped_storage().data_ptr() for each in plain if each.numel() and not each.is_meta}
    return len(storages) < len(plain) and bool(overlapping(plain))
