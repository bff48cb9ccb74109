"""How waiting values reach what modules make late.

While values wait on any module, PyTorch's own hooks tell of every parameter, buffer and module that is registered, before
it is put in place. Lazy modules register before and make their parameters in the first call: those values are given
after that, and before ``forward``; the numbers that the initialization drew are put back, for nothing came of them.

A parameter may be initialized after it was registered, which would overwrite what it was given. In the first call after
the restore, operations in place on such a parameter do nothing; before that call, it is given its value once more; and
where neither is possible, as in compiled calls, the call ends with an error. PyTorch calls no hook when Ctrl-C ends a
call, so calls are made by way of `_Call`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from milepost.adapters.torch.private import UninitializedTensorMixin, hide_from_compilers, registration
from milepost.deferred.rescan import look_again
from milepost.deferred.table import Position, admit, defer, deferred_on
from milepost.errors import UnmatchedError
from milepost.graph.adapter import adapter_of

_F = TypeVar("_F", bound=Callable[..., Any])
_pending: Final[weakref.WeakKeyDictionary[torch.nn.Module, _Watch]] = weakref.WeakKeyDictionary()
"""Modules on which values wait."""
_containers: Final[weakref.WeakKeyDictionary[torch.nn.Module, int]] = weakref.WeakKeyDictionary()
"""Those of them that are never called, as lists of modules are, and how many members they had when last seen."""
_unverified: Final[weakref.WeakKeyDictionary[torch.nn.Module, list[_Given]]] = weakref.WeakKeyDictionary()
"""Modules with tensors that got their values when they were registered and may be initialized after that."""
_modes: Final[list[_KeepRestored]] = []
"""What is active in the first calls that are running, the innermost last."""
_global_hooks: Final[list[Any]] = []
_call_hooks: Final[list[Any]] = []
"""Global hooks too, for containers only: PyTorch warns of them when modules are compiled."""


class _Given(NamedTuple):
    name: str
    tensor: weakref.ref[torch.Tensor]
    version: int
    position: Position


class _Watch:
    """What was installed for one module.

    Attributes:
        wrappers: Modules that run this one otherwise, on which the same values wait.
        handles: Its hooks.
        called: Whether it has been called since.
        mode: What is active in its first call.
        random: The state of random generators before lazy parameters were initialized.
        kept: What a lazy module held before, with copies, for its initialization resets all of it.
    """

    def __init__(self) -> None:
        self.wrappers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.handles: list[Any] = []
        self.called = False
        self.mode: _KeepRestored | None = None
        self.random: list[tuple[torch.Generator, torch.Tensor]] = []
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []


class _KeepRestored(TorchFunctionMode):  # type: ignore[misc]  # which is untyped
    """Makes operations in place on parameters that were just restored, or on views of their memory, do nothing."""

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
        if target.layout is not torch.strided or not target.numel() or target.is_meta:
            return False
        memory = target.untyped_storage().data_ptr()
        return any(each.numel() and each.untyped_storage().data_ptr() == memory for each in self.restored)


def _is_in_place(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    if name.endswith("__"):
        return name == "__setitem__" or func == _SET_DATA
    return name.endswith("_") and name not in _NO_VALUES


class _Call:
    """Calls a watched module, and ends what is active in its first call however that ends.

    It stands where PyTorch has the compiled form of a module, which is never pickled or copied.

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
            if module in _pending:
                _leave(module)


_SET_DATA: Final = torch.Tensor.data.__set__
_NO_VALUES: Final = frozenset({"requires_grad_", "retain_grad_", "share_memory_", "rename_"})


def watch_module(obj: Any, module: Any) -> None:
    """Watches a module on which values have begun to wait.

    Args:
        obj: The module that they wait on.
        module: The same, or the module that it wraps, which will get the children.
    """
    if obj is not module:
        for name, positions in deferred_on(obj).items():
            present = deferred_on(module).get(name, ())
            for position in positions:
                if position not in present:
                    defer(module, name, position)
    watch = _pending.get(module)
    if watch is None:
        watch = _pending[module] = _Watch()
        _add_hooks(module, watch)
    if _is_lazy(module):
        made = [each for each in _own(module) if not isinstance(each, UninitializedTensorMixin)]
        watch.kept = [(each, each.detach().clone()) for each in made]
    if obj is not module:
        watch.wrappers.add(obj)
    if not _global_hooks:
        _global_hooks.extend(
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


def _add_hooks(module: Any, watch: _Watch) -> None:
    is_lazy = _is_lazy(module)
    if is_lazy:
        watch.handles = [
            module.register_forward_pre_hook(_before_initialization, prepend=True),
            module.register_forward_pre_hook(_after_initialization),
        ]
    if is_lazy and isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        return
    if type(module).forward is torch.nn.Module.forward:
        if not _call_hooks:
            _call_hooks.append(registration.register_module_forward_pre_hook(_before_any_call))
            _call_hooks.append(registration.register_module_forward_hook(_after_any_call))
        _containers[module] = len(module._modules)
    else:
        watch.handles += [
            module.register_forward_pre_hook(_before_call, prepend=True),
            module.register_forward_hook(_after_call, always_call=True),
        ]
        vars(module)["_compiled_call_impl"] = _Call(module)


def _untraced(function: _F) -> _F:
    """Makes compilers leave their graph for a call, for what it does is not theirs to record."""
    hidden: _F = hide_from_compilers(function)
    return hidden


# The test comes first and by itself: compilers follow it at no cost, and leave only where there is something to do.
def _on_registration(module: Any, name: str, child: Any) -> Any:
    if module in _pending:
        return _admit(module, name, child)
    return None


@_untraced
def _admit(module: Any, name: str, child: Any) -> Any:
    if child is None or name not in deferred_on(module):
        return None
    watch = _pending[module]
    position = max(deferred_on(module)[name], key=lambda each: each.uid)
    successor = admit(module, name, child)
    if isinstance(successor, torch.Tensor):
        mode = watch.mode or (_modes[-1] if _modes else None)
        if mode is None:
            given = _Given(name, weakref.ref(successor), successor._version, position)
            _unverified.setdefault(module, []).append(given)
        elif isinstance(successor, torch.nn.Parameter):
            mode.restored.append(successor)
    for wrapper in watch.wrappers:
        look_again(wrapper)
    return None if successor is child else successor


def _overwritten(module: Any, kind: type[Any] = torch.Tensor) -> list[str]:
    """Gives tensors that were initialized after they got their values these once more, and returns their names."""
    names = []
    for given in _unverified.pop(module, ()):
        tensor = given.tensor()
        if isinstance(tensor, kind) and tensor._version != given.version:
            adapter = adapter_of(tensor)
            if adapter is not None:
                (value,) = adapter.values(tensor)
                adapter.assign(tensor, {value.name: given.position.peek()})
                names.append(given.name)
    return names


@_untraced
def _before_initialization(module: Any, arguments: Any) -> None:
    watch = _pending.get(module)
    if watch is not None:
        watch.random = [(generator, generator.get_state()) for generator in _generators()]


@_untraced
def _after_initialization(module: Any, arguments: Any) -> None:
    watch = _pending.get(module)
    if watch is None:
        return
    deliver(module)
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
        for container, size in list(_containers.items()):
            # Inserting into a list registers nothing.
            if len(container._modules) != size:
                _containers[container] = len(container._modules)
                deliver(container)
            if container in _unverified:
                _overwritten(container)
                _release(container)


def _after_any_call(module: Any, arguments: Any, output: Any) -> None:
    if not torch.compiler.is_compiling():
        for container in [each for each in _containers if each in _unverified]:
            lost = _overwritten(container, torch.nn.Parameter)
            _release(container)
            if lost:
                raise _lost("in a call of the module around theirs", lost)


def _before_call(module: Any, arguments: Any) -> None:
    if not torch.compiler.is_compiling():
        _begin_call(module)
    elif module in _unverified:
        _begin_compiled_call(module)


@_untraced
def _begin_call(module: Any) -> None:
    _overwritten(module)
    deliver(module)
    watch = _pending.get(module)
    if watch is not None and not watch.called:
        watch.called = True
        mode = _KeepRestored()
        mode.__enter__()
        _modes.append(mode)
        watch.mode = mode


@_untraced
def _begin_compiled_call(module: Any) -> None:
    _overwritten(module)
    deliver(module)


def _after_call(module: Any, arguments: Any, output: Any) -> None:
    if module in _unverified or not torch.compiler.is_compiling():
        _end_call(module)


@_untraced
def _end_call(module: Any) -> None:
    _leave(module)
    lost = _overwritten(module, torch.nn.Parameter)  # a call may change buffers for good reasons
    late = [name for name in deferred_on(module) if _is_made(module._parameters.get(name))]
    if late:
        deliver(module)
    _release(module)
    if late:
        raise UnmatchedError(
            "parameters were made in a call before they could be restored, and its result is therefore wrong",
            key=", ".join(late),
            remedy="call the module again, for the restored values are in place now; or call it once before the restore",
        )
    if lost:
        raise _lost("in a compiled call", lost)


def _lost(where: str, names: Iterable[str]) -> UnmatchedError:
    return UnmatchedError(
        f"parameters were initialized after they had been restored, {where}, whose result is therefore wrong",
        key=", ".join(names),
        remedy="initialize a tensor before it becomes an attribute; its restored value is in place again",
    )


def _is_made(parameter: Any) -> bool:
    return parameter is not None and not isinstance(parameter, UninitializedTensorMixin)


def _leave(module: Any) -> None:
    """Ends what is active in the first call of a module."""
    watch = _pending.get(module)
    if watch is not None:
        _end_mode(watch)


def _end_mode(watch: _Watch) -> None:
    mode, watch.mode = watch.mode, None
    if mode is not None:
        _modes.remove(mode)
        mode.__exit__(None, None, None)


def deliver(module: Any) -> None:
    """Gives what waits on a module to what it holds by now."""
    look_again(module)
    watch = _pending.get(module)
    if watch is not None:
        for wrapper in watch.wrappers:
            look_again(wrapper)
    if module in _containers:
        _release(module)


def _release(module: Any) -> None:
    """Takes the hooks away from a module that nothing waits on any more, and those of PyTorch after the last."""
    if deferred_on(module) or module in _unverified:
        return
    _containers.pop(module, None)
    watch = _pending.pop(module, None)
    if watch is not None:
        _end_mode(watch)
        for handle in watch.handles:
            handle.remove()
        call = module._compiled_call_impl
        if isinstance(call, _Call):
            del vars(module)["_compiled_call_impl"]
            if call.former is not None:
                vars(module)["_compiled_call_impl"] = call.former
    for installed, needed in ((_global_hooks, _pending), (_call_hooks, _containers)):
        while installed and not needed:
            installed.pop().remove()


def _generators() -> list[torch.Generator]:
    """PyTorch's own generators, of the devices that are in use."""
    generators = [torch.default_generator]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    return generators
