"""Every private name of PyTorch that milepost imports, with its purpose. Tested with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

# Hooks that are called for every parameter, buffer and module before it is registered.
from torch.nn.modules import module as registration

# The class of parameters and buffers of lazy modules before the first call.
from torch.nn.parameter import UninitializedTensorMixin

# Whether a tensor consists of others, as distributed and quantized tensors do.
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = [
    "ATTRIBUTES",
    "VERSIONS",
    "UninitializedTensorMixin",
    "default_store",
    "has_gathered_parameters",
    "hide_from_compilers",
    "is_traceable_wrapper_subclass",
    "load_from_state_dict",
    "per_channel_tensor",
    "per_tensor_tensor",
    "registration",
    "root_mesh",
    "save_to_state_dict",
    "swap_tensors",
]

swap_tensors: Callable[[Any, Any], None] = torch._C._swap_tensor_impl
"""Turns a tensor on the meta device into a real one, without changing its identity. The public function refuses weakly referenced ones."""

hide_from_compilers: Callable[..., Any] = torch._disable_dynamo
"""Keeps compilers out of a hook without importing them, as `torch.compiler.disable` would."""

save_to_state_dict: Final[Any] = torch.nn.Module._save_to_state_dict
"""Overridden by classes that save more than their parameters and buffers."""

load_from_state_dict: Final[Any] = torch.nn.Module._load_from_state_dict
"""Overridden by classes that load more, or in another way."""

VERSIONS: Final = "_metadata"
"""The attribute of a ``state_dict`` with the versions of the classes of modules."""

per_tensor_tensor: Callable[..., torch.Tensor] = torch._make_per_tensor_quantized_tensor
"""Makes a quantized tensor from its integers; the public function takes real numbers and rounds them."""

per_channel_tensor: Callable[..., torch.Tensor] = torch._make_per_channel_quantized_tensor
"""The same, with a scale for each channel."""


def root_mesh(mesh: Any) -> Any:
    """The mesh that a mesh is a part of, along some of its dimensions; the mesh itself if it is none."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    return torch.distributed.device_mesh._mesh_resources.get_root_mesh(mesh)  # before PyTorch 2.10


def has_gathered_parameters(module: Any) -> bool:
    """Whether `fully_shard` was called for a module, and has replaced its parameters by gathered ones."""
    state_of = getattr(type(module), "_get_fsdp_state", None)
    if state_of is None:
        return False
    state = state_of(module)
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [each for each in [state._fsdp_param_group] if each is not None]  # before PyTorch 2.12
    return any(not group.is_sharded for group in groups)


default_store: Callable[[], Any] | None = None
"""Returns the store of the default process group; None if it has none, as with MPI."""

if torch.distributed.is_available():
    from torch.distributed.distributed_c10d import _get_default_store

    default_store = _get_default_store

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "torch.nn.Module": {
        "_parameters": "parameters, without the modules' own lookup",
        "_buffers": "buffers",
        "_modules": "modules inside",
        "_non_persistent_buffers_set": "buffers that a state_dict leaves out",
        "_compiled_call_impl": "the call of a compiled module, instead of `_call_impl`",
        "_call_impl": "a call with its hooks",
        "_save_to_state_dict": "whether a class writes something that is not a parameter or buffer",
        "_load_from_state_dict": "whether a class does more than copy values",
        "_state_dict_hooks": "whether hooks change what is written",
        "_state_dict_pre_hooks": "whether hooks change the module before that",
        "_load_state_dict_pre_hooks": "whether hooks do something before loading",
        "_load_state_dict_post_hooks": "whether something is done after loading",
    },
    "torch.Tensor": {
        "_version": "whether a value was changed since it was restored, or a gradient since it was used",
        "_indices": "indices of a sparse tensor, some of which may occur twice",
        "_values": "the values at these indices",
    },
    "torch.distributed.tensor.DTensor": {
        "_local_tensor": "the local shard itself, of which the public to_local() makes another tensor",
        "_spec": "the order of the splits, where it is not that of the mesh",
    },
    "torch.optim.Optimizer": {
        "_optimizer_step_pre_hooks": "whether a hook before the step is there already",
        "_optimizer_step_post_hooks": "whether a hook after the step is there already",
        "_optimizer_state_dict_pre_hooks": "whether hooks change the optimizer before it is saved",
        "_optimizer_state_dict_post_hooks": "whether hooks change what is saved",
        "_optimizer_load_state_dict_pre_hooks": "whether hooks change what it loads",
        "_optimizer_load_state_dict_post_hooks": "whether something is done after loading",
    },
}
"""Private attributes of objects, by class and name, each with its purpose."""
