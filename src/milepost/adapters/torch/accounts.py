"""The entries of a module's ``state_dict`` that are not registered parameters and buffers.

A class can override ``state_dict`` or ``_save_to_state_dict``, and hooks can change what these return. The entries that such a
module adds, or whose values differ from the registered ones, are saved together as plain state, under the name ``state_dict``. A
restore passes them to the module's own ``load_state_dict``, together with the other entries as they are then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from milepost.adapters.torch.distributed.local_shards import is_dtensor, local_of
from milepost.adapters.torch.private import UninitializedTensorMixin, load_from_state_dict, save_to_state_dict
from milepost.adapters.torch.views import Part
from milepost.deferred.table import deferred_on
from milepost.errors import MilepostError, UntrackableError
from milepost.graph.keys import EXTRA_STATE, STATE_DICT

_WRAPPERS: Final = {
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.ActivationWrapper": "_checkpoint_wrapped_module",
    "lightning.fabric.wrappers._FabricModule": "_forward_module",
    "lightning_fabric.wrappers._FabricModule": "_forward_module",
}
"""Classes, by name because some of their modules take long to import, each with the attribute that holds the module inside."""
_NOT_IN_NAMES: Final = frozenset({"_checkpoint_wrapped_module", "_forward_module"})
"""Those of these attributes that the class leaves out of the names in its ``state_dict``."""


class _Registered(NamedTuple):
    """A parameter or a buffer, or the extra state of a module.

    Attributes:
        steps: Names of the edges that lead to it.
        tensor: The parameter or buffer; None for extra state.
    """

    steps: tuple[str, ...]
    tensor: Any


def unwrapped(module: Any) -> Any:
    """The module inside all wrappers."""
    *_, inside = layers(module)
    return inside


def layers(module: Any) -> Iterator[Any]:
    """A module, the module inside it if it is a wrapper, and so on: from the outermost wrapper to what is in all of them."""
    yield module
    while (attribute := _wrapped_attribute(type(module))) is not None:
        module = module._modules[attribute]
        yield module


def persistent_buffers(module: Any) -> Iterator[tuple[str, Any]]:
    """The buffers of a module itself that are in its ``state_dict``."""
    not_persistent = getattr(module, "_non_persistent_buffers_set", ())
    for name, buffer in module._buffers.items():
        if name not in not_persistent:
            yield name, buffer


def has_extra_state(module: Any) -> bool:
    """Whether the class of a module has a ``get_extra_state`` of its own."""
    return type(module).get_extra_state is not torch.nn.Module.get_extra_state


def overrides_saving(module: Any) -> bool:
    """Whether the ``state_dict`` of a module may hold something else than its registered parameters and buffers."""
    kind = type(module)
    return bool(
        kind.state_dict is not torch.nn.Module.state_dict
        or kind._save_to_state_dict is not save_to_state_dict
        or STATE_DICT in vars(module)
        or getattr(module, "_state_dict_hooks", None)
        or getattr(module, "_state_dict_pre_hooks", None)
    )


def account_of(module: Any) -> Mapping[str, Any]:
    """The ``state_dict`` of a module.

    Raises:
        UntrackableError: Its ``state_dict`` method raises an error.
    """
    try:
        try:
            account: Mapping[str, Any] = module.state_dict(keep_vars=True)
        except TypeError:  # an overridden method may take no arguments
            account = module.state_dict()
    except MilepostError:
        raise
    except Exception as error:
        raise state_dict_fails(module, error) from error
    return account


def state_dict_fails(obj: Any, error: Exception) -> UntrackableError:
    """The error for a module or an optimizer whose ``state_dict`` raises."""
    name = type(obj).__name__
    return UntrackableError(
        f"state_dict() of this {name} fails, so its state is not known",
        found=f"{type(error).__name__}: {error}",
        remedy=f"save when {name}.state_dict() can be called; look at what its class and its hooks do in that call",
    )


def own_state(module: Any) -> dict[str, Any]:
    """The entries of a module's ``state_dict`` that neither it nor a module in it has registered, by their dotted names."""
    registered = {key: entry.tensor for key, entry in _registered(module, "", ())}
    others = {
        f"{prefix}{key}"
        for prefix, _, inner in _modules(module, "", ())
        if inner is not module and overrides_saving(inner)
        for key in own_state(inner)
    }
    known = {id(tensor) for tensor in registered.values()}
    return {
        # Detached, as in a plain call of state_dict().
        key: value.detach() if isinstance(value, torch.Tensor) and id(value) in known else value
        for key, value in account_of(module).items()
        if key not in others
        and not (key in registered and (registered[key] is None or _is_the_same(value, registered[key])))
    }


def removed_names(module: Any) -> list[str]:
    """What a module and those in it have registered, and its own code leaves out of its ``state_dict``: names of edges, joined by dots."""
    if not overrides_saving(module):
        return []
    account = account_of(module)
    return [
        ".".join(entry.steps)
        for key, entry in _registered(module, "", ())
        if key not in account and not isinstance(entry.tensor, UninitializedTensorMixin)
    ]


def accounted(module: Any) -> Iterator[tuple[Sequence[str], Any]]:
    """The entries of a module's ``state_dict``, each with the names of the edges that lead to it."""
    registered = dict(_registered(module, "", ()))
    steps_by_key = {
        f"{prefix}{key}": (*steps, STATE_DICT)
        for prefix, steps, inner in _modules(module, "", ())
        if overrides_saving(inner)
        for key in own_state(inner)
    }
    for key, value in account_of(module).items():
        if key in steps_by_key:
            yield steps_by_key[key], value
        elif not isinstance(value, UninitializedTensorMixin):
            yield registered[key].steps if key in registered else key.split("."), value


def registered_tensors(module: Any) -> dict[str, Any]:
    """The parameters and persistent buffers of a module and of those in it, by their names in its ``state_dict``."""
    return {key: entry.tensor for key, entry in _registered(module, "", ()) if entry.tensor is not None}


def own_part(module: Any) -> Part:
    """What `own_state` returns, as a part of the module."""
    return Part(module, own_state, _load, f"the state_dict() of a {type(module).__name__}")


def may_convert(module: Any) -> bool:
    """Whether a class, its hooks or PyTorch itself may do something else than copy values, when a module loads another state than it would save."""
    kind = type(module)
    return bool(
        kind.load_state_dict is not torch.nn.Module.load_state_dict
        or kind._load_from_state_dict is not load_from_state_dict
        or "load_state_dict" in vars(module)
        or getattr(module, "_load_state_dict_pre_hooks", None)
    )


def overrides_loading(module: Any) -> bool:
    """Whether loading the state of a module may do something else than copy values, for a class or hooks that are not PyTorch's."""
    kind = type(module)
    return bool(
        kind.load_state_dict is not torch.nn.Module.load_state_dict
        or _is_overridden(kind._load_from_state_dict)
        or "load_state_dict" in vars(module)
        or getattr(module, "_load_state_dict_post_hooks", None)
        or any(_is_overridden(_hook(each)) for each in getattr(module, "_load_state_dict_pre_hooks", {}).values())
    )


def load_again(module: Any) -> None:
    """Makes a module load the values that it holds already, so that its class and its hooks do what they do on loading."""
    if is_complete(module):
        module.load_state_dict(account_to_load(module))


def is_complete(module: Any) -> bool:
    """Whether a module can load a whole state, because nothing in it is to be made later."""
    if any(deferred_on(each) for each in module.modules()):
        return False
    return not any(isinstance(each, UninitializedTensorMixin) for each in (*module.parameters(), *module.buffers()))


def account_to_load(module: Any) -> Any:
    """The ``state_dict`` of a module with the values that it holds, before its code that saves changes any of them."""
    kept = {}
    if any(overrides_saving(each) for each in module.modules()):
        # The code that saves may write into the restored tensors.
        kept = {
            key: (entry.tensor, entry.tensor.detach().clone())
            for key, entry in _registered(module, "", ())
            if entry.tensor is not None
        }
    account = module.state_dict()
    for key, (tensor, value) in kept.items():
        if key in account and _is_the_same(account[key], tensor):
            account[key] = value
    return account


def _load(module: Any, state: Mapping[str, Any]) -> None:
    former = own_state(module)
    account = module.state_dict()
    for key in former:
        account.pop(key, None)
    account.update(state)
    module.load_state_dict(account)


def _is_overridden(method: Any) -> bool:
    return method is not load_from_state_dict and not str(getattr(method, "__module__", "")).startswith("torch.")


def _hook(wrapped: Any) -> Any:
    """The function of a hook that PyTorch has wrapped."""
    return getattr(wrapped, "hook", wrapped)


def _wrapped_attribute(kind: type) -> str | None:
    for base in kind.__mro__:
        attribute = _WRAPPERS.get(f"{base.__module__}.{base.__qualname__}")
        if attribute is not None:
            return attribute
    return None


def _modules(module: Any, prefix: str, steps: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """A module and all modules in it: for each the prefix of its names in the ``state_dict``, the edges that lead to it, and itself."""
    yield prefix, steps, module
    wrapped = _wrapped_attribute(type(module))
    for name, child in module._modules.items():
        if child is not None:
            inner_prefix = prefix if name == wrapped and name in _NOT_IN_NAMES else f"{prefix}{name}."
            yield from _modules(child, inner_prefix, steps if name == wrapped else (*steps, name))


def _registered(module: Any, prefix: str, steps: tuple[str, ...]) -> Iterator[tuple[str, _Registered]]:
    for inner_prefix, inner_steps, inner in _modules(module, prefix, steps):
        for name, tensor in (*inner._parameters.items(), *persistent_buffers(inner)):
            if tensor is not None:
                yield f"{inner_prefix}{name}", _Registered((*inner_steps, name), tensor)
        if has_extra_state(inner):
            yield f"{inner_prefix}{EXTRA_STATE}", _Registered((*inner_steps, EXTRA_STATE), None)


def _is_the_same(value: Any, tensor: torch.Tensor) -> bool:
    if value is tensor:
        return True
    if not isinstance(value, torch.Tensor) or value.dtype != tensor.dtype or value.shape != tensor.shape:
        return False
    if is_dtensor(value) or is_dtensor(tensor):
        # To compare whole DTensors would be a collective operation.
        if not is_dtensor(value) or not is_dtensor(tensor) or value.placements != tensor.placements:
            return False
        return value.device_mesh == tensor.device_mesh and _is_the_same(local_of(value), local_of(tensor))
    if value.is_meta or tensor.is_meta:
        return bool(value.is_meta and tensor.is_meta)
    try:
        if value.data_ptr() == tensor.data_ptr() and value.stride() == tensor.stride():
            return True
        return bool(torch.equal(value, tensor.to(value.device)))
    except (RuntimeError, NotImplementedError):
        return False
