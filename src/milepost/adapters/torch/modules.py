"""PyTorch modules: what their ``state_dict`` holds, under the names it is held by, and trackable objects in attributes.

What a module's own ``state_dict`` holds beside what is registered is in `accounts`. Wrappers that run a module otherwise (``DataParallel``, ``DistributedDataParallel``, ``torch.compile``) have the edges of
the module that they wrap, so that files fit either.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from milepost.adapters.torch.accounts import (
    EXTRA_STATE,
    STATE_DICT,
    accounted,
    has_extra_state,
    load_again,
    loads_otherwise,
    own_part,
    own_state,
    persistent_buffers,
    tells_otherwise,
    unwrapped,
)
from milepost.adapters.torch.forgotten import Forgotten
from milepost.adapters.torch.hooks import watch_module
from milepost.adapters.torch.private import UninitializedTensorMixin
from milepost.adapters.torch.sharded import has_sharded, sharded_omission
from milepost.adapters.torch.views import Part, view_of
from milepost.errors import UnrestoredWarning, warn
from milepost.graph.adapter import Adapter, adapter_of_type, register
from milepost.graph.omissions import Accounted, Omission

_OWN: Final = frozenset(vars(torch.nn.Module()))
_SETTINGS: Final = (torch.Tensor, np.ndarray, np.generic)
_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type, type(lambda: None), torch.dtype})


_named_already: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""Modules of whose buffers one was warned when the module around them was settled."""


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
            yield STATE_DICT, Forgotten(sharded)
            return
        # First, since telling may change what is registered.
        own = tells_otherwise(module) and own_state(module)
        yield from registered(module)
        if has_extra_state(module):
            yield EXTRA_STATE, view_of(module, EXTRA_STATE, lambda: _extra_state(module))
        if own:
            yield STATE_DICT, _own_part(module)
        yield from _attributes(module)

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

    def exchanged(self, obj: Any) -> Collection[str]:
        return [name for name, _ in unwrapped(obj)._buffers.items()]  # a scripted module has no dict

    def on_restored(self, obj: Any) -> None:
        module = unwrapped(obj)
        if loads_otherwise(module) and not has_sharded(module):
            load_again(module)
        if module in _named_already:
            _named_already.discard(module)
        else:
            _name_buffers_without_memory(module)

    def on_deferred(self, obj: Any) -> None:
        watch_module(obj, unwrapped(obj))


def registered(module: Any) -> Iterator[tuple[str, Any]]:
    """A module's parameters, persistent buffers and submodules, without those that are not made yet."""
    for name, parameter in module._parameters.items():
        if parameter is not None and not isinstance(parameter, UninitializedTensorMixin):
            yield name, parameter
    for name, buffer in persistent_buffers(module):
        if buffer is not None and not isinstance(buffer, UninitializedTensorMixin):
            yield name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield name, child


def _name_buffers_without_memory(module: Any) -> None:
    """Warns of buffers that no checkpoint holds and that are on the meta device still.

    Modules inside are looked at too if they have no other state, for then a checkpoint may not know of them.
    """
    for name in getattr(module, "_non_persistent_buffers_set", ()):
        buffer = module._buffers[name]
        if buffer is not None and buffer.is_meta and not isinstance(buffer, UninitializedTensorMixin):
            warn(
                f"the buffer {name!r} of a {type(module).__name__} is on the meta device still: it is not persistent, "
                "so it was not saved; give it its value before the module is called",
                UnrestoredWarning,
            )
    for child in module._modules.values():
        if child is not None and not _has_state(child):
            _name_buffers_without_memory(child)
            _named_already.add(child)


def _has_state(module: Any) -> bool:
    own = (*module._parameters.values(), *(buffer for _, buffer in persistent_buffers(module)))
    if any(each is not None for each in own):
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
    """Attributes that PyTorch does not know, as generators and milepost's own objects; tensors there are settings."""
    for name, value in list(vars(module).items()):
        if name.startswith("_") or name in _OWN or type(value) in _PLAIN or isinstance(value, _SETTINGS):
            continue
        if isinstance(value, (list, tuple, dict)):
            held = _unregistered(module, value)
            if held is not None:
                yield (
                    name,
                    Forgotten(
                        Omission(
                            f"PyTorch does not look into a {type(value).__name__} in an attribute, and this one holds a "
                            f"{type(held).__name__} that it does not know",
                            "use ModuleList, ModuleDict, ParameterList or ParameterDict",
                            doubtful=True,
                        )
                    ),
                )
        elif adapter_of_type(type(value)) is not None:
            yield name, value


def _unregistered(module: Any, container: Any) -> Any:
    """A module or parameter in a plain container that PyTorch does not know of, or None."""
    members = container.values() if isinstance(container, dict) else container
    found = [each for each in members if isinstance(each, (torch.nn.Module, torch.nn.Parameter))]
    if not found:
        return None
    known = {id(each) for each in (*module.modules(), *module.parameters())}
    return next((each for each in found if id(each) not in known), None)


register(ModuleAdapter())
