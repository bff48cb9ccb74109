"""PyTorch modules: what their ``state_dict`` holds, under the names it is held by, and trackable objects in attributes.

Wrappers that run a module otherwise (``DataParallel``, ``DistributedDataParallel``, ``torch.compile``) have the edges of
the module that they wrap, so that files fit either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch

from milepost.adapters.torch.hooks import watch_module
from milepost.adapters.torch.private import UninitializedTensorMixin, save_to_state_dict
from milepost.adapters.torch.views import Part, view_of
from milepost.errors import UnrestoredWarning, warn
from milepost.graph.adapter import Adapter, adapter_of_type, register
from milepost.graph.omissions import Omission

_WRAPPERS: Final = {
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
}
"""Classes by name, for some of their modules take long to import, and the attribute with the module inside."""
_EXTRA: Final = "_extra_state"
_OWN: Final = frozenset(vars(torch.nn.Module()))
_SETTINGS: Final = (torch.Tensor, np.ndarray, np.generic)
_PLAIN: Final = frozenset({int, float, complex, bool, str, bytes, type(None), type, type(lambda: None), torch.dtype})


class ModuleAdapter(Adapter):
    """`torch.nn.Module`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, torch.nn.Module)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        module = unwrapped(obj)
        yield from registered(module)
        if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
            yield _EXTRA, view_of(module, _EXTRA, lambda: _extra_state(module))
        yield from _attributes(module)
        yield from _written_otherwise(module)

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

    def settled(self, obj: Any) -> None:
        module = unwrapped(obj)
        for name in getattr(module, "_non_persistent_buffers_set", ()):
            buffer = module._buffers[name]
            if buffer is not None and buffer.is_meta and not isinstance(buffer, UninitializedTensorMixin):
                warn(
                    f"the buffer {name!r} of a {type(module).__name__} is on the meta device still: it is not persistent, "
                    "so it was not saved; give it its value before the module is called",
                    UnrestoredWarning,
                )

    def watch(self, obj: Any) -> None:
        watch_module(obj, unwrapped(obj))


def unwrapped(module: Any) -> Any:
    """The module inside all wrappers."""
    while (attribute := _wrapped_attribute(type(module))) is not None:
        module = module._modules[attribute]
    return module


def registered(module: Any) -> Iterator[tuple[str, Any]]:
    """A module's parameters, persistent buffers and submodules, without those that are not made yet."""
    for name, parameter in module._parameters.items():
        if parameter is not None and not isinstance(parameter, UninitializedTensorMixin):
            yield name, parameter
    passing = getattr(module, "_non_persistent_buffers_set", ())
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in passing and not isinstance(buffer, UninitializedTensorMixin):
            yield name, buffer
    for name, child in module._modules.items():
        if child is not None:
            yield name, child


def _wrapped_attribute(kind: type) -> str | None:
    for base in kind.__mro__:
        found = _WRAPPERS.get(f"{base.__module__}.{base.__qualname__}")
        if found is not None:
            return found
    return None


def _extra_state(module: Any) -> Part:
    return Part(
        module,
        lambda owner: owner.get_extra_state(),
        lambda owner, state: owner.set_extra_state(state),
        f"the extra state of {type(module).__name__}",
    )


def _written_otherwise(module: Any) -> Iterator[tuple[str, Any]]:
    """What a module of a class that writes its own ``state_dict`` adds to it."""
    if type(module)._save_to_state_dict is save_to_state_dict:
        return
    written: dict[str, Any] = {}
    module._save_to_state_dict(written, "", True)
    known = {_EXTRA, *module._parameters, *module._buffers}
    for name in written:
        if name not in known:
            yield (
                name,
                _Forgotten(Omission("the module's own _save_to_state_dict() writes this", "use get_extra_state()")),
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
                    _Forgotten(
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


class _Forgotten:
    """Stands for state that is not saved, with the reason."""

    __slots__ = ("omission",)

    def __init__(self, omission: Omission) -> None:
        self.omission = omission


class _ForgottenAdapter(Adapter):
    conditional = True

    def handles(self, kind: type) -> bool:
        return kind is _Forgotten

    def tracks(self, obj: _Forgotten) -> bool:
        return False

    def omission(self, obj: _Forgotten) -> Omission | None:
        return obj.omission


register(ModuleAdapter())
register(_ForgottenAdapter())
