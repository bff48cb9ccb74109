"""What modules have in their ``state_dict`` beside what they have registered.

A class may override ``state_dict`` or ``_save_to_state_dict``, and hooks may be registered for it. What such a module adds to
its account, or tells otherwise than it is registered, is one part of plain state, under the name ``state_dict``. It is
given back through the module's own ``load_state_dict``, together with the rest of the account as it is then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from milepost.adapters.torch.private import UninitializedTensorMixin, load_from_state_dict, save_to_state_dict
from milepost.adapters.torch.views import Part
from milepost.deferred.table import deferred_on
from milepost.errors import MilepostError, UntrackableError

STATE_DICT: Final = "state_dict"
"""Name of the edge to what a module or an optimizer tells of itself in its own way."""
EXTRA_STATE: Final = "_extra_state"
_WRAPPERS: Final = {
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
}
"""Classes by name, for some of their modules take long to import, and the attribute with the module inside."""


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
    while (attribute := _wrapped_attribute(type(module))) is not None:
        module = module._modules[attribute]
    return module


def persistent_buffers(module: Any) -> Iterator[tuple[str, Any]]:
    """The buffers of a module itself that its ``state_dict`` has."""
    passing = getattr(module, "_non_persistent_buffers_set", ())
    for name, buffer in module._buffers.items():
        if name not in passing:
            yield name, buffer


def has_extra_state(module: Any) -> bool:
    """Whether the class of a module has a ``get_extra_state`` of its own."""
    return type(module).get_extra_state is not torch.nn.Module.get_extra_state


def tells_otherwise(module: Any) -> bool:
    """Whether the ``state_dict`` of a module may hold something else than what is registered."""
    kind = type(module)
    return bool(
        kind.state_dict is not torch.nn.Module.state_dict
        or kind._save_to_state_dict is not save_to_state_dict
        or STATE_DICT in vars(module)
        or getattr(module, "_state_dict_hooks", None)
        or getattr(module, "_state_dict_pre_hooks", None)
    )


def account_of(module: Any) -> Mapping[str, Any]:
    """What a module tells of itself and all modules in it, by dotted names.

    Raises:
        UntrackableError: Its ``state_dict`` fails.
    """
    try:
        try:
            account: Mapping[str, Any] = module.state_dict(keep_vars=True)
        except TypeError:  # a class of its own may take no arguments
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
        f"the state_dict() of this {name} fails, so it is not known what belongs to its state",
        found=f"{type(error).__name__}: {error}",
        remedy=f"save when {name}.state_dict() can be called; see what its class or its hooks do there",
    )


def own_state(module: Any) -> dict[str, Any]:
    """The part of a module's account that neither it nor a module in it has registered, by dotted names."""
    registered = {key: found.tensor for key, found in _registered(module, "", ())}
    others = {
        f"{prefix}{key}"
        for prefix, _, inner in _modules(module, "", ())
        if inner is not module and tells_otherwise(inner)
        for key in own_state(inner)
    }
    known = {id(tensor) for tensor in registered.values()}
    return {
        # As `state_dict()` has it, which was asked for the very parameters here.
        key: value.detach() if isinstance(value, torch.Tensor) and id(value) in known else value
        for key, value in account_of(module).items()
        if key not in others
        and not (key in registered and (registered[key] is None or _is_the_same(value, registered[key])))
    }


def accounted(module: Any) -> Iterator[tuple[Sequence[str], Any]]:
    """Each part of a module's account, with the names of the edges that lead to it."""
    registered = dict(_registered(module, "", ()))
    own = {
        f"{prefix}{key}": (*steps, STATE_DICT)
        for prefix, steps, inner in _modules(module, "", ())
        if tells_otherwise(inner)
        for key in own_state(inner)
    }
    for key, value in account_of(module).items():
        if key in own:
            yield own[key], value
        elif not isinstance(value, UninitializedTensorMixin):
            yield registered[key].steps if key in registered else key.split("."), value


def own_part(module: Any) -> Part:
    """The part of a module that `own_state` is."""
    return Part(module, own_state, _load, f"the state_dict() of a {type(module).__name__}")


def loads_otherwise(module: Any) -> bool:
    """Whether something else than copying may follow when the state of a module is loaded."""
    kind = type(module)
    return bool(
        kind.load_state_dict is not torch.nn.Module.load_state_dict
        or _is_foreign(kind._load_from_state_dict)
        or "load_state_dict" in vars(module)
        or getattr(module, "_load_state_dict_post_hooks", None)
    )


def load_again(module: Any) -> None:
    """Lets a module load what it holds already, so that what its class or its hooks do then is done."""
    members = list(module.modules())
    if any(deferred_on(each) for each in members):
        return
    if any(isinstance(each, UninitializedTensorMixin) for each in (*module.parameters(), *module.buffers())):
        return
    kept = {}
    if any(tells_otherwise(each) for each in members):
        # Telling may write into what was just restored.
        kept = {
            key: (found.tensor, found.tensor.detach().clone())
            for key, found in _registered(module, "", ())
            if found.tensor is not None
        }
    account = module.state_dict()
    for key, (tensor, value) in kept.items():
        if key in account and _is_the_same(account[key], tensor):
            account[key] = value
    module.load_state_dict(account)


def _load(module: Any, state: Mapping[str, Any]) -> None:
    former = own_state(module)
    account = module.state_dict()
    for key in former:
        account.pop(key, None)
    account.update(state)
    module.load_state_dict(account)


def _is_foreign(method: Any) -> bool:
    return method is not load_from_state_dict and not str(getattr(method, "__module__", "")).startswith("torch.")


def _wrapped_attribute(kind: type) -> str | None:
    for base in kind.__mro__:
        found = _WRAPPERS.get(f"{base.__module__}.{base.__qualname__}")
        if found is not None:
            return found
    return None


def _modules(module: Any, prefix: str, steps: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """A module and all in it: the prefix of its names in the account, the edges that lead to it, and it."""
    yield prefix, steps, module
    wrapped = _wrapped_attribute(type(module))
    for name, child in module._modules.items():
        if child is not None:
            yield from _modules(child, f"{prefix}{name}.", steps if name == wrapped else (*steps, name))


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
    if value.is_meta or tensor.is_meta:
        return bool(value.is_meta and tensor.is_meta)
    try:
        if value.data_ptr() == tensor.data_ptr() and value.stride() == tensor.stride():
            return True
        return bool(torch.equal(value, tensor.to(value.device)))
    except (RuntimeError, NotImplementedError):
        return False
