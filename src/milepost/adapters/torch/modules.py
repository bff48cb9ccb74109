"""PyTorch modules: the entries of their ``state_dict``, under the same names, and trackable objects in attributes.

`accounts` handles entries that are not registered. Wrappers of modules (``DataParallel``, ``DistributedDataParallel``,
``torch.compile``, ``checkpoint_wrapper``, Fabric's) have the edges of the module that they wrap, so that a file fits a module with and without
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.nn.modules.lazy import LazyModuleMixin

from milepost.adapters.torch.accounts import (
    accounted,
    has_extra_state,
    layers,
    load_again,
    may_convert,
    overrides_loading,
    overrides_saving,
    own_part,
    own_state,
    persistent_buffers,
    removed_names,
    unwrapped,
)
from milepost.adapters.torch.distributed.data_parallel import broadcast_buffers, put_shards_back
from milepost.adapters.torch.distributed.local_shards import is_dtensor
from milepost.adapters.torch.hooks import watch_module
from milepost.adapters.torch.older_states import load_saved
from milepost.adapters.torch.private import UninitializedTensorMixin
from milepost.adapters.torch.refused import has_sharded, sharded_omission
from milepost.adapters.torch.reshaping import adapted_by, reshaped_by
from milepost.adapters.torch.unsaved import Unsaved
from milepost.adapters.torch.views import Part, view_of
from milepost.errors import UnrestoredWarning, warn
from milepost.facts import Fact
from milepost.graph.adapter import Adapter, Array, adapter_of_type, register
from milepost.graph.contract.matching import LoadedState, SavedState
from milepost.graph.keys import EXTRA_STATE, STATE_DICT
from milepost.graph.omissions import Accounted, Omission
from milepost.graph.saved.all_names import named
from milepost.tensor import TensorSpec

_OWN: Final = frozenset(vars(torch.nn.Module()))
_SETTINGS: Final = (torch.Tensor, np.ndarray, np.generic)
_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type, type(lambda: None), torch.dtype})
_warned_of: Final[Fact[bool]] = Fact()
"""Modules with buffers on the meta device, of which the restore of the module around them has warned."""


class ModuleAdapter(Adapter):
    """`torch.nn.Module`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, torch.nn.Module)

    def account(self, obj: Any) -> Iterable[Accounted]:
        if has_sharded(unwrapped(obj)):
            return
        for steps, value in accounted(unwrapped(obj)):
            yield Accounted(steps, value)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        module = unwrapped(obj)
        sharded = sharded_omission(module)
        if sharded is not None:
            yield STATE_DICT, Unsaved(sharded)
            return
        for each in layers(obj):
            put_shards_back(each)
        # Asked first, because the code that saves may change what is registered.
        entries = overrides_saving(module) and own_state(module)
        yield from registered(module)
        if has_extra_state(module):
            yield EXTRA_STATE, view_of(module, EXTRA_STATE, lambda: _extra_state(module))
        if entries:
            yield STATE_DICT, _own_part(module)
        yield from _attributes(module)

    def hints_to_save(self, obj: Any) -> Mapping[str, Array]:
        module = unwrapped(obj)
        version = getattr(module, "_version", None)
        removed = () if has_sharded(module) else removed_names(module)
        return named(version if type(version) is int else None, lazy_names(module), _unlisted(module), removed)

    def of_first_process(self, obj: Any) -> Collection[Any]:
        return [buffer for each in layers(obj) for buffer in broadcast_buffers(each)]

    def frozen(self, obj: Any) -> Collection[Any]:
        return [each for each in unwrapped(obj)._parameters.values() if each is not None and not each.requires_grad]

    def stand_ins(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        if STATE_DICT in saved:
            yield STATE_DICT, _own_part(unwrapped(obj))

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        module = unwrapped(obj)
        for name, child in changes.items():
            for members in (module._parameters, module._buffers, module._modules, vars(module)):
                if name in members:
                    members[name] = child
                    break
        return obj

    def reshaped(self, obj: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Collection[Any]:
        module = unwrapped(obj)
        return () if has_sharded(module) else reshaped_by(module, saved)

    def adapted(self, obj: Any, saved: Sequence[tuple[Any, TensorSpec]]) -> Collection[Any]:
        module = unwrapped(obj)
        return () if has_sharded(module) else adapted_by(module, saved)

    def loads_saved(self, obj: Any) -> bool:
        return may_convert(unwrapped(obj))

    def load_saved(self, obj: Any, saved: SavedState) -> LoadedState | None:
        module = unwrapped(obj)
        return None if has_sharded(module) else load_saved(module, saved)

    def exchanged(self, obj: Any) -> Collection[str]:
        return [name for name, _ in unwrapped(obj)._buffers.items()]  # in a scripted module, this is not a dict

    def converted(self, obj: Any) -> Collection[str]:
        return [name for name, each in unwrapped(obj)._parameters.items() if each is not None and is_dtensor(each)]

    def on_restored(self, obj: Any) -> None:
        module = unwrapped(obj)
        if overrides_loading(module) and not has_sharded(module):
            load_again(module)
        if not _warned_of.pop(module):
            _warn_of_meta_buffers(module)

    def on_deferred(self, obj: Any) -> None:
        watch_module(obj, unwrapped(obj))


def registered(module: Any) -> Iterator[tuple[str, Any]]:
    """A module's parameters, persistent buffers and submodules, without those that have no value yet."""
    for name, parameter in module._parameters.items():
        if parameter is not None and not isinstance(parameter, UninitializedTensorMixin):
            yield name, parameter
    for name, buffer in persistent_buffers(module):
        if buffer is not None and not isinstance(buffer, UninitializedTensorMixin):
            yield name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield name, child


def lazy_names(module: Any) -> list[str]:
    """The names of the parameters and persistent buffers of a lazy module that have no values yet."""
    if not isinstance(module, LazyModuleMixin):
        return []
    members = (*module._parameters.items(), *persistent_buffers(module))
    return [name for name, each in members if isinstance(each, UninitializedTensorMixin)]


def _warn_of_meta_buffers(module: Any) -> None:
    """Warns of buffers that are not saved and are still on the meta device.

    Modules inside that have no other state are included, because a checkpoint may not hold anything of them.
    """
    for name in getattr(module, "_non_persistent_buffers_set", ()):
        buffer = module._buffers[name]
        if buffer is not None and buffer.is_meta and not isinstance(buffer, UninitializedTensorMixin):
            warn(
                f"the buffer {name!r} of a {type(module).__name__} is still on the meta device: it is not persistent, "
                "so it was not saved; assign its value before the module is called",
                UnrestoredWarning,
            )
    for child in module._modules.values():
        if child is not None and not _has_state(child):
            _warn_of_meta_buffers(child)
            _warned_of[child] = True


def _has_state(module: Any) -> bool:
    tensors = (*module._parameters.values(), *(buffer for _, buffer in persistent_buffers(module)))
    if any(each is not None for each in tensors):
        return True
    return any(child is not None and _has_state(child) for child in module._modules.values())


def _own_part(module: Any) -> Part:
    return view_of(module, STATE_DICT, lambda: own_part(module))


def _extra_state(module: Any) -> Part:
    return Part(
        module,
        lambda owner: owner.get_extra_state(),
        lambda owner, state: owner.set_extra_state(state),
        f"the extra state of {type(module).__name__}",
    )


def _attributes(module: Any) -> Iterator[tuple[str, Any]]:
    """Attributes that PyTorch does not save, such as generators and milepost's own objects. Tensors there are settings."""
    for name, value in list(vars(module).items()):
        if name.startswith("_") or name in _OWN or type(value) in _PLAIN or isinstance(value, _SETTINGS):
            continue
        if isinstance(value, (list, tuple, dict)):
            unregistered = _unregistered(module, value)
            if unregistered:
                yield (
                    name,
                    Unsaved(
                        Omission(
                            f"PyTorch does not save the members of a {type(value).__name__} in an attribute, and this one holds "
                            f"a {type(unregistered[0]).__name__} that is registered nowhere",
                            "use ModuleList, ModuleDict, ParameterList or ParameterDict",
                            doubtful=True,
                            parts=tuple(part for each in unregistered for part in _state_of(each)),
                        )
                    ),
                )
        elif adapter_of_type(type(value)) is not None:
            yield name, value


def _unlisted(module: Any) -> list[str]:
    """The attributes that are modules which PyTorch has not registered, such as those that ``object.__setattr__`` has set."""
    return [name for name, value in vars(module).items() if isinstance(value, torch.nn.Module)]


def _unregistered(module: Any, container: Any) -> list[Any]:
    """The modules and parameters in a plain container that are not registered anywhere in a module."""
    members = container.values() if isinstance(container, dict) else container
    candidates = [each for each in members if isinstance(each, (torch.nn.Module, torch.nn.Parameter))]
    if not candidates:
        return []
    known = {id(each) for each in (*module.modules(), *module.parameters())}
    return [each for each in candidates if id(each) not in known]


def _state_of(member: Any) -> tuple[Any, ...]:
    """The tensors of a module; the module itself if it has none, and a parameter by itself."""
    if not isinstance(member, torch.nn.Module):
        return (member,)
    state = (*member.parameters(), *(each for inner in member.modules() for _, each in persistent_buffers(inner)))
    return tuple(each for each in state if each is not None) or (member,)


register(ModuleAdapter())
