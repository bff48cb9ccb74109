"""How deferred values are restored into parameters, buffers and modules that a module gets later.

While values are deferred for any module, PyTorch's global registration hooks are installed. They are called for each parameter,
buffer and module before it is registered. Lazy modules register their parameters at once and initialize them in the first call.
These parameters are restored after that, and before ``forward``. The state of the random generators is restored too, because the
drawn numbers are not used.

A program may initialize a parameter after it was registered, which would overwrite the restored value. In the first call after the
restore, in-place operations on such a parameter do nothing. Before that call, the value is assigned again. If neither is possible,
as in compiled calls, the call ends with an error. PyTorch calls no hook if Ctrl-C ends a call, so `_Call` makes the calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from milepost.adapters.torch.distributed.local_shards import is_dtensor, local_of
from milepost.adapters.torch.private import UninitializedTensorMixin, hide_from_compilers, registration
from milepost.deferred.rescan import look_again
from milepost.deferred.table import Position, admit, defer, deferred_on
from milepost.errors import UnmatchedError
from milepost.graph.adapter import adapter_of

_F = TypeVar("_F", bound=Callable[..., Any])
_watched: Final[weakref.WeakKeyDictionary[torch.nn.Module, _ModuleWatch]] = weakref.WeakKeyDictionary()
"""Modules for whose children values are deferred, and what was installed for each."""


class _Installed:
    """What is installed for all modules.

    Attributes:
        containers: Watched modules that are never called, such as lists of modules, and how many members each had when it was last scanned.
        modes: The modes of the first calls that are running, the innermost last.
        handles: The handles of the registration hooks.
        call_handles: The handles of the hooks of calls. They are installed for containers only, because PyTorch warns of them in compiled
            modules.
    """

    def __init__(self) -> None:
        self.containers: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
        self.modes: list[_KeepRestored] = []
        self.handles: list[Any] = []
        self.call_handles: list[Any] = []


_installed: Final = _Installed()


class _Given(NamedTuple):
    """A tensor that was restored when it was registered.

    Attributes:
        name: Its name in the module.
        tensor: The tensor.
        version: How often it had been changed in place then.
        position: The saved value.
    """

    name: str
    tensor: weakref.ref[torch.Tensor]
    version: int
    position: Position


class _ModuleWatch:
    """What was installed for one module.

    Attributes:
        wrappers: Modules that wrap this one, for which the same values are deferred.
        handles: The handles of its hooks.
        called: Whether it has been called since.
        mode: The mode of its first call, while that runs.
        random: The random generators, with their states before lazy parameters were initialized.
        given: The tensors that were restored when they were registered, and that may be initialized after that.
        kept: The tensors that a lazy module held before, with copies, because its initialization resets all of them.
    """

    def __init__(self) -> None:
        self.wrappers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.handles: list[Any] = []
        self.called = False
        self.mode: _KeepRestored | None = None
        self.random: list[tuple[torch.Generator, torch.Tensor]] = []
        self.given: list[_Given] = []
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []


class _KeepRestored(TorchFunctionMode):  # type: ignore[misc]  # which is untyped
    """Makes in-place operations on parameters that were just restored, and on views of their memory, do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.restored: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.restored and _is_in_place(func):
            target = args[0] if args else kwargs.get("tensor")  # the functions of torch.nn.init name it
            if isinstance(target, torch.Tensor) and self._is_restored(target):
                return target
        return func(*args, **kwargs)

    def _is_restored(self, target: torch.Tensor) -> bool:
        if any(target is each for each in self.restored):
            return True
        memory = _address(target)
        return memory is not None and any(_address(each) == memory for each in self.restored)


def _address(tensor: torch.Tensor) -> int | None:
    """Where the memory of a tensor begins, that of its local shard if it is a DTensor; None if it has none."""
    local = local_of(tensor) if is_dtensor(tensor) else tensor
    if local.layout is not torch.strided or not local.numel() or local.is_meta:
        return None
    return int(local.untyped_storage().data_ptr())


def _is_in_place(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    if name.endswith("__"):
        return name == "__setitem__" or func == _SET_DATA
    return name.endswith("_") and name not in _NO_VALUES


class _Call:
    """Calls a watched module, and ends the mode of its first call however the call ends.

    It replaces a module's compiled form, because that is never pickled or copied.

    Attributes:
        former: The compiled form, if there is one.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = weakref.ref(module)
        self.former: Callable[..., Any] | None = module._compiled_call_impl

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        assert module is not None, "it is the module that calls this"
        try:
            return (self.former or module._call_impl)(*args, **kwargs)
        finally:
            if module in _watched:
                _leave(module)


_SET_DATA: Final = torch.Tensor.data.__set__
_NO_VALUES: Final = frozenset({"requires_grad_", "retain_grad_", "share_memory_", "rename_"})


def watch_module(obj: Any, module: Any) -> None:
    """Installs hooks for a module for whose children values are deferred.

    Args:
        obj: The module.
        module: The same module, or the one that it wraps, which will get the children.
    """
    if obj is not module:
        for name, positions in deferred_on(obj).items():
            present = deferred_on(module).get(name, ())
            for position in positions:
                if position not in present:
                    defer(module, name, position)
    watch = _watched.get(module)
    if watch is None:
        watch = _watched[module] = _ModuleWatch()
        _add_hooks(module, watch)
    if _is_lazy(module):
        made = [each for each in _own(module) if not isinstance(each, UninitializedTensorMixin)]
        watch.kept = [(each, each.detach().clone()) for each in made]
    if obj is not module:
        watch.wrappers.add(obj)
    if not _installed.handles:
        _installed.handles.extend(
            (
                registration.register_module_parameter_registration_hook(_on_registration),
                registration.register_module_buffer_registration_hook(_on_registration),
                registration.register_module_module_registration_hook(_on_registration),
            )
        )


def _is_lazy(module: Any) -> bool:
    return any(isinstance(each, UninitializedTensorMixin) for each in _own(module))


def _own(module: Any) -> Iterator[Any]:
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)


def _add_hooks(module: Any, watch: _ModuleWatch) -> None:
    is_lazy = _is_lazy(module)
    if is_lazy:
        watch.handles = [
            module.register_forward_pre_hook(_before_initialization, prepend=True),
            module.register_forward_pre_hook(_after_initialization),
        ]
    if is_lazy and isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        return
    if type(module).forward is torch.nn.Module.forward:
        if not _installed.call_handles:
            _installed.call_handles.append(registration.register_module_forward_pre_hook(_before_any_call))
            _installed.call_handles.append(registration.register_module_forward_hook(_after_any_call))
        _installed.containers[module] = len(module._modules)
    else:
        watch.handles += [
            module.register_forward_pre_hook(_before_call, prepend=True),
            module.register_forward_hook(_after_call, always_call=True),
        ]
        vars(module)["_compiled_call_impl"] = _Call(module)


def _untraced(function: _F) -> _F:
    """Makes compilers leave their graph for a call of a function, so that they do not record what it does."""
    hidden: _F = hide_from_compilers(function)
    return hidden


# The test is a function of its own. Compilers trace it at no cost, and leave their graph only if there is something to do.
def _on_registration(module: Any, name: str, child: Any) -> Any:
    if module in _watched:
        return _admit(module, name, child)
    return None


@_untraced
def _admit(module: Any, name: str, child: Any) -> Any:
    if child is None or name not in deferred_on(module):
        return None
    watch = _watched[module]
    position = max(deferred_on(module)[name], key=lambda each: each.uid)
    successor = admit(module, name, child)
    if isinstance(successor, torch.Tensor):
        mode = watch.mode or (_installed.modes[-1] if _installed.modes else None)
        if mode is None:
            watch.given.append(_Given(name, weakref.ref(successor), successor._version, position))
        elif isinstance(successor, torch.nn.Parameter):
            mode.restored.append(successor)
    for wrapper in watch.wrappers:
        look_again(wrapper)
    return None if successor is child else successor


def _is_unverified(module: Any) -> bool:
    """Whether a module has tensors that may have been initialized after they were restored."""
    return module in _watched and bool(_watched[module].given)


def _overwritten(module: Any, kind: type[Any] = torch.Tensor) -> list[str]:
    """Assigns their values again to tensors that were initialized after they were restored.

    Args:
        module: The module.
        kind: The class of the tensors that count.

    Returns:
        The names of these tensors.
    """
    names: list[str] = []
    watch = _watched.get(module)
    if watch is None:
        return names
    unverified, watch.given = watch.given, []
    for record in unverified:
        tensor = record.tensor()
        if isinstance(tensor, kind) and tensor._version != record.version:
            adapter = adapter_of(tensor)
            if adapter is not None:
                (value,) = adapter.values(tensor)
                adapter.assign(tensor, {value.name: record.position.peek()})
                names.append(record.name)
    return names


@_untraced
def _before_initialization(module: Any, arguments: Any) -> None:
    watch = _watched.get(module)
    if watch is not None:
        watch.random = [(generator, generator.get_state()) for generator in _generators()]


@_untraced
def _after_initialization(module: Any, arguments: Any) -> None:
    watch = _watched.get(module)
    if watch is None:
        return
    _restore_deferred(module)
    with torch.no_grad():
        for tensor, value in watch.kept:
            tensor.copy_(value)
    watch.kept = []
    if not deferred_on(module):
        for generator, state in watch.random:
            generator.set_state(state)
    _release(module)


def _before_any_call(module: Any, arguments: Any) -> None:
    if not torch.compiler.is_compiling():
        for container, size in list(_installed.containers.items()):
            # A module that is inserted into a list is not registered, so the length tells.
            if len(container._modules) != size:
                _installed.containers[container] = len(container._modules)
                _restore_deferred(container)
            if _is_unverified(container):
                _overwritten(container)
                _release(container)


def _after_any_call(module: Any, arguments: Any, output: Any) -> None:
    if not torch.compiler.is_compiling():
        for container in [each for each in _installed.containers if _is_unverified(each)]:
            lost = _overwritten(container, torch.nn.Parameter)
            _release(container)
            if lost:
                raise _lost("in a call of a module that contains theirs", lost)


def _before_call(module: Any, arguments: Any) -> None:
    if not torch.compiler.is_compiling():
        _begin_call(module)
    elif _is_unverified(module):
        _begin_compiled_call(module)


@_untraced
def _begin_call(module: Any) -> None:
    _overwritten(module)
    _restore_deferred(module)
    watch = _watched.get(module)
    if watch is not None and not watch.called:
        watch.called = True
        mode = _KeepRestored()
        mode.__enter__()
        _installed.modes.append(mode)
        watch.mode = mode


@_untraced
def _begin_compiled_call(module: Any) -> None:
    _overwritten(module)
    _restore_deferred(module)


def _after_call(module: Any, arguments: Any, output: Any) -> None:
    if _is_unverified(module) or not torch.compiler.is_compiling():
        _end_call(module)


@_untraced
def _end_call(module: Any) -> None:
    _leave(module)
    lost = _overwritten(module, torch.nn.Parameter)  # calls change buffers on purpose
    missed = [name for name in deferred_on(module) if _is_made(module._parameters.get(name))]
    if missed:
        _restore_deferred(module)
    _release(module)
    if missed:
        raise UnmatchedError(
            "this call made parameters and used them before they could be restored, so its result is wrong",
            key=", ".join(missed),
            remedy="call the module again: the restored values are in place now; or call it once before the restore",
        )
    if lost:
        raise _lost("in a compiled call", lost)


def _lost(occasion: str, names: Iterable[str]) -> UnmatchedError:
    return UnmatchedError(
        f"parameters were initialized after they had been restored, {occasion}, so the result of that call is wrong",
        key=", ".join(names),
        remedy="call the module again: the restored values are in place now; initialize tensors before they become attributes",
    )


def _is_made(parameter: Any) -> bool:
    return parameter is not None and not isinstance(parameter, UninitializedTensorMixin)


def _leave(module: Any) -> None:
    """Ends the mode of the first call of a module."""
    watch = _watched.get(module)
    if watch is not None:
        _end_mode(watch)


def _end_mode(watch: _ModuleWatch) -> None:
    mode, watch.mode = watch.mode, None
    if mode is not None:
        _installed.modes.remove(mode)
        mode.__exit__(None, None, None)


def _restore_deferred(module: Any) -> None:
    """Restores the deferred values of the children that a module has now."""
    look_again(module)
    watch = _watched.get(module)
    if watch is not None:
        for wrapper in watch.wrappers:
            look_again(wrapper)
    if module in _installed.containers:
        _release(module)


def _release(module: Any) -> None:
    """Removes the hooks of a module if nothing is deferred for it any more, and the global hooks with those of the last module."""
    if deferred_on(module) or _is_unverified(module):
        return
    _installed.containers.pop(module, None)
    watch = _watched.pop(module, None)
    if watch is not None:
        _end_mode(watch)
        for handle in watch.handles:
            handle.remove()
        call = module._compiled_call_impl
        if isinstance(call, _Call):
            del vars(module)["_compiled_call_impl"]
            if call.former is not None:
                vars(module)["_compiled_call_impl"] = call.former
    for handles, needed in ((_installed.handles, _watched), (_installed.call_handles, _installed.containers)):
        while handles and not needed:
            handles.pop().remove()


def _generators() -> list[torch.Generator]:
    """PyTorch's default generators, of the devices that are in use."""
    generators = [torch.default_generator]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    return generators
