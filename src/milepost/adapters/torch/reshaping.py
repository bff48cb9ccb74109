"""Modules that change the shapes of their tensors when they load state, as those that observe ranges for quantization do.

PyTorch has no list of such modules: a method or a hook may do it. So a copy of the module on the meta device, which has no values,
loads tensors of the saved shapes. A tensor that has its saved shape after that is one that the module reshapes.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch

from milepost.adapters.torch.accounts import may_convert, registered_tensors
from milepost.adapters.torch.distributed.local_shards import ORDINARY
from milepost.tensor import TensorSpec


def reshaped_by(module: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Collection[Any]:
    """The tensors in a module to which it gives the saved shape when it loads its state.

    Args:
        module: The module.
        saved: Tensors, each with a saved element type and shape.
    """
    return [each for each, spec, shape in _tried(module, saved) if shape == spec.shape]


def adapted_by(module: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Collection[Any]:
    """The tensors in a module that keep their shapes when it loads values of the saved shapes, because it adapts these.

    PyTorch itself takes one number with a dimension for one without.

    Args:
        module: The module.
        saved: As for `reshaped_by`.
    """
    identities = {id(each) for each in (*module._parameters.values(), *module._buffers.values())}
    numbers = [each for each, spec in saved if id(each) in identities and not each.ndim and spec.shape == (1,)]
    return [*numbers, *(each for each, _, shape in _tried(module, saved) if shape == each.shape)]


def _tried(module: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Iterator[tuple[Any, TensorSpec, Any]]:
    """Tensors in a module, each with the saved element type and shape, and the shape that it has when a copy of the module has loaded these. A tensor
    that has kept its shape is left out if the copy could not load them."""
    members = list(module.modules())
    if not any(may_convert(each) for each in members) or any(_cannot_be_copied(each) for each in members):
        return
    names = {id(tensor): key for key, tensor in registered_tensors(module).items()}
    wanted = {names[id(each)]: (each, spec) for each, spec in saved if id(each) in names and type(each) in ORDINARY}
    if not wanted:
        return
    is_loaded = False
    after: dict[str, Any] = {}
    with torch.device("meta"), torch.no_grad(), suppress(Exception):  # the module's own code may raise any error
        tried = _copy_without_values(module)
        state = tried.state_dict()
        state.update({key: torch.empty(spec.shape, dtype=each.dtype) for key, (each, spec) in wanted.items()})
        with suppress(Exception):  # which tensors it has reshaped shows afterwards
            tried.load_state_dict(state)
            is_loaded = True
        after = registered_tensors(tried)
    for key, (each, spec) in wanted.items():
        if key in after and (is_loaded or after[key].shape != each.shape):
            yield each, spec, after[key].shape


def _cannot_be_copied(module: Any) -> bool:
    """Whether a method or hook of a copy might change the module itself, because it knows it by a closure."""
    if "load_state_dict" in vars(module) or "_load_from_state_dict" in vars(module):
        return True
    hooks = (
        *getattr(module, "_load_state_dict_pre_hooks", {}).values(),
        *getattr(module, "_state_dict_hooks", {}).values(),
    )
    return any(getattr(getattr(hook, "hook", hook), "__closure__", None) for hook in hooks)


def _copy_without_values(module: Any) -> Any:
    tensors = [each for inner in module.modules() for each in (*inner._parameters.values(), *inner._buffers.values())]
    memo = {id(each): _without_values(each) for each in tensors if each is not None}
    return copy.deepcopy(module, memo)


def _without_values(tensor: Any) -> Any:
    empty = torch.empty_like(tensor, device="meta")
    return torch.nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else empty
