"""Modules that change the shapes of their tensors when they load state, as those that observe ranges for quantization do.

PyTorch has no list of such modules: a method or a hook may do it. So a copy of the module on the meta device, which has no values,
loads tensors of the saved shapes. A tensor that has its saved shape after that is one that the module reshapes.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import torch

from milepost.adapters.torch.accounts import registered_tensors
from milepost.adapters.torch.local_shards import ORDINARY
from milepost.adapters.torch.private import load_from_state_dict
from milepost.tensor import TensorSpec


def reshaped_by(module: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Collection[Any]:
    """The tensors in a module to which it gives the saved shape when it loads its state.

    Args:
        module: The module.
        saved: Tensors, each with a saved element type and shape.
    """
    members = list(module.modules())
    if not any(_may_reshape(each) for each in members) or any(_cannot_be_copied(each) for each in members):
        return ()
    names = {id(tensor): key for key, tensor in registered_tensors(module).items()}
    wanted = {names[id(each)]: (each, spec) for each, spec in saved if id(each) in names and type(each) in ORDINARY}
    if not wanted:
        return ()
    with torch.device("meta"), torch.no_grad(), suppress(Exception):  # the module's own code may raise any error
        tried = _copy_without_values(module)
        state = tried.state_dict()
        state.update({key: torch.empty(spec.shape, dtype=each.dtype) for key, (each, spec) in wanted.items()})
        with suppress(Exception):  # which tensors it has reshaped shows afterwards
            tried.load_state_dict(state)
        after = registered_tensors(tried)
        return [each for key, (each, spec) in wanted.items() if key in after and after[key].shape == spec.shape]
    return ()


def _may_reshape(module: Any) -> bool:
    kind = type(module)
    return bool(
        kind.load_state_dict is not torch.nn.Module.load_state_dict
        or kind._load_from_state_dict is not load_from_state_dict
        or getattr(module, "_load_state_dict_pre_hooks", None)
    )


def _cannot_be_copied(module: Any) -> bool:
    """Whether a method or hook of a copy might change the module itself, because it knows it by a closure."""
    if "load_state_dict" in vars(module) or "_load_from_state_dict" in vars(module):
        return True
    own = (
        *getattr(module, "_load_state_dict_pre_hooks", {}).values(),
        *getattr(module, "_state_dict_hooks", {}).values(),
    )
    return any(getattr(getattr(hook, "hook", hook), "__closure__", None) for hook in own)


def _copy_without_values(module: Any) -> Any:
    tensors = [each for inner in module.modules() for each in (*inner._parameters.values(), *inner._buffers.values())]
    memo = {id(each): _without_values(each) for each in tensors if each is not None}
    return copy.deepcopy(module, memo)


def _without_values(tensor: Any) -> Any:
    empty = torch.empty_like(tensor, device="meta")
    return torch.nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else empty
