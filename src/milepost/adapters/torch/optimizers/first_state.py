"""State of special classes, as low-bit optimizers have, for an optimizer that has made no step.

Such a tensor consists of several, such as codes, scales and a table. Its class is in no file, and only the optimizer makes it. So a
second optimizer of the same class, with one parameter of zeros, makes a step. The live optimizer, its parameters, its hooks and the
state of random generators do not change.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import torch

from milepost.adapters.torch.distributed.local_shards import is_dtensor

_LEFT_OUT: Final = frozenset({"state", "param_groups", "step"})
"""What the second optimizer has for itself. A scheduler puts a ``step`` of the live optimizer into its attributes."""
_HOOKS: Final = "_hooks"
_SETTINGS: Final = (bool, int, float, str, type(None), torch.dtype, torch.device)


def state_of_first_step(optimizer: Any, group: Mapping[str, Any], parameter: Any) -> dict[str, Any]:
    """The state that an optimizer makes for a parameter in its first step.

    Args:
        optimizer: The optimizer.
        group: The group of the parameter.
        parameter: A parameter.

    Returns:
        The state by name, whose numbers mean nothing. Empty if the optimizer makes none for a parameter of zeros alone, or
        has more in its attributes than settings, which the second one would change.
    """
    attributes = {name: each for name, each in vars(optimizer).items() if name not in _LEFT_OUT}
    kept = {name: each for name, each in attributes.items() if not name.endswith(_HOOKS)}
    if is_dtensor(parameter) or not all(map(_is_setting, kept.values())):
        return {}
    stand_in = torch.nn.Parameter(torch.zeros_like(parameter, requires_grad=False))
    stand_in.grad = torch.zeros_like(stand_in)
    settings = {name: each.clone() if isinstance(each, torch.Tensor) else each for name, each in group.items()}
    second = object.__new__(type(optimizer))
    vars(second).update(kept, **{name: type(each)() for name, each in attributes.items() if name not in kept})
    vars(second).update(state=defaultdict(dict), param_groups=[{**settings, "params": [stand_in]}])
    kind = stand_in.device.type
    devices = [] if kind == "cpu" else [stand_in.device]
    step = inspect.unwrap(type(optimizer).step)  # without the hooks of all optimizers
    try:
        with torch.random.fork_rng(devices, device_type=kind if devices else "cuda"), torch.no_grad():
            step(second)
    except Exception:  # the optimizer's own code may need more than this parameter
        return {}
    return dict(second.state.get(stand_in, {}))


def _is_setting(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_setting, value.values())) and all(map(_is_setting, value))
    if isinstance(value, (list, tuple)):
        return all(map(_is_setting, value))
    return isinstance(value, _SETTINGS) or inspect.isroutine(value)
