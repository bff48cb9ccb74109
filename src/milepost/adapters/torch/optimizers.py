"""PyTorch optimizers: per-parameter state as slot variables of the parameter, hyperparameters of each parameter group.

::

    net/weight/.OPTIMIZER_SLOT/optimizer/exp_avg/.ATTRIBUTES/VARIABLE_VALUE      tensors
    net/weight/.OPTIMIZER_SLOT/optimizer/func_evals/.ATTRIBUTES/py_state         other state
    optimizer/param_groups/0/lr/.ATTRIBUTES/VARIABLE_VALUE                       see `param_groups`

State does not exist before the first step. Restoring makes it, with the types and shapes that were saved, which need not
be the parameter's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from milepost.adapters.torch.memory import torch_dtype
from milepost.adapters.torch.param_groups import ParamGroups, remember
from milepost.adapters.torch.steps import watch_step
from milepost.adapters.torch.tensors import home_of
from milepost.adapters.torch.views import Part, forget_view, view_of
from milepost.graph.adapter import Adapter, adapter_of_type, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import TensorSpec

_GROUPS: Final = "param_groups"
_COMMON: Final = "state"
_OWN: Final = frozenset({_GROUPS, _COMMON, "defaults"})


class OptimizerAdapter(Adapter):
    """`torch.optim.Optimizer`."""

    slots_are_children = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, torch.optim.Optimizer)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        yield _GROUPS, view_of(obj, _GROUPS, lambda: ParamGroups(obj))
        if any(isinstance(key, str) for key in obj.state):
            yield _COMMON, view_of(obj, _COMMON, lambda: Part(obj, _common_state, _set_common_state, _COMMON))
        for name, value in list(vars(obj).items()):
            # Optimizers inside optimizers; tensors and numbers there are settings.
            if name not in _OWN and not name.startswith("_") and _is_state(value):
                yield name, value

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        vars(obj).update(changes)
        return obj

    def stand_ins(self, obj: Any, saved: Iterable[str]) -> Iterable[tuple[str, Any]]:
        yield _COMMON, view_of(obj, _COMMON, lambda: Part(obj, _common_state, _set_common_state, _COMMON))

    def has_slots(self, obj: Any) -> bool:
        return True

    def slot_names(self, obj: Any) -> Sequence[str]:
        names: dict[str, None] = {}
        for parameter, state in obj.state.items():
            if isinstance(parameter, torch.Tensor):
                names.update(dict.fromkeys(state))
        return list(names)

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        # Asking `state` for what it lacks would make it.
        if not isinstance(variable, torch.Tensor) or variable not in obj.state or name not in obj.state[variable]:
            return None
        value = obj.state[variable][name]
        return value if isinstance(value, torch.Tensor) and not _changes_kinds(obj) else _part(obj, variable, name)

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        group = _group_of(obj, variable)
        if group is None:
            return None
        if list(saved) != [VARIABLE_VALUE] or _changes_kinds(obj):
            obj.state[variable][name] = None
            return _part(obj, variable, name)
        spec = saved[VARIABLE_VALUE]
        dtype = torch_dtype(spec.dtype)
        device = home_of(variable)
        if not spec.shape and not (group.get("capturable") or group.get("fused") or isinstance(obj, torch.optim.ASGD)):
            device = torch.device("cpu")
        if spec.shape == tuple(variable.shape):
            slot = torch.empty_like(variable, dtype=dtype, device=device, requires_grad=False)
        else:
            slot = torch.empty(spec.shape, dtype=dtype, device=device)
        obj.state[variable][name] = slot
        return slot

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        obj.state[variable].pop(name, None)
        if not obj.state[variable]:
            del obj.state[variable]
        forget_view(obj, (id(variable), name))

    def settled(self, obj: Any) -> None:
        remember(obj)

    def watch(self, obj: Any) -> None:
        watch_step(obj, obj)


def _changes_kinds(optimizer: Any) -> bool:
    """Whether what is a number in one step may be a tensor in the next."""
    return isinstance(optimizer, torch.optim.LBFGS)


def _part(optimizer: Any, parameter: Any, name: str) -> Part:
    def put(owner: Any, value: Any) -> None:
        owner.state[parameter][name] = value

    def make() -> Part:
        return Part(optimizer, lambda owner: owner.state[parameter][name], put, f"the state {name!r}")

    return view_of(optimizer, (id(parameter), name), make)


def _group_of(optimizer: Any, parameter: Any) -> Any:
    """The group of a parameter, or None if it is not one of this optimizer's."""
    now = [(id(group), *map(id, group["params"][-1:]), len(group["params"])) for group in optimizer.param_groups]
    index: dict[str, Any] = view_of(optimizer, "group of parameter", dict)
    if index.get("of") != now:
        groups = {id(each): (each, group) for group in optimizer.param_groups for each in group["params"]}
        index.update(of=now, groups=groups)
    found, group = index["groups"].get(id(parameter), (None, None))
    return group if found is parameter else None


def _common_state(optimizer: Any) -> dict[str, Any]:
    return {key: value for key, value in optimizer.state.items() if isinstance(key, str)}


def _set_common_state(optimizer: Any, state: Any) -> None:
    optimizer.state.update(state)


def _is_state(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, list, dict, tuple)):
        return False
    adapter = adapter_of_type(type(value))
    return adapter is not None and not adapter.leaf


register(OptimizerAdapter())
