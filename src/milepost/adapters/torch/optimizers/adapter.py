"""PyTorch optimizers: per-parameter state as slot variables of the parameter, hyperparameters of each parameter group.

::

    net/weight/.OPTIMIZER_SLOT/optimizer/exp_avg/.ATTRIBUTES/VARIABLE_VALUE      tensors
    net/weight/.OPTIMIZER_SLOT/optimizer/func_evals/.ATTRIBUTES/py_state         other state
    net/weight/.OPTIMIZER_SLOT/optimizer/{}/.ATTRIBUTES/py_state                 a parameter whose state is an empty dict
    optimizer/param_groups/0/lr/.ATTRIBUTES/VARIABLE_VALUE                       see `param_groups`

State does not exist before the first step. A restore makes it, with the saved types, shapes and strides, which may differ from the
parameter's. State that exists is restored in place if it has the same type, shape and strides. State of a DTensor is made on its
mesh: with its placements if it has its shape, and otherwise whole on every process, as PyTorch makes it. It is plain if it was plain,
and if it is a number.

A parameter in the state is restored as a parameter (`leaves`).

Some optimizers are saved by their ``state_dict`` alone, as plain state: those whose class or hooks change it, and those whose
state cannot be divided, because one tensor is in several parts of it::

    optimizer/state_dict/.ATTRIBUTES/py_state
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch

from milepost.adapters.optimizer_settings import EMPTY, NO_STATE, PLAIN_SETTINGS, STRIDES, as_loaded
from milepost.adapters.torch.accounts import state_dict_fails
from milepost.adapters.torch.distributed.local_shards import home_of_shard, is_dtensor, new_dtensor
from milepost.adapters.torch.hints import GRADIENT, HINTS, PLAIN, keep_hint
from milepost.adapters.torch.in_place import into
from milepost.adapters.torch.layouts import is_made_alike, keep_layout, unlike_layout
from milepost.adapters.torch.memory import dtype_of, torch_dtype
from milepost.adapters.torch.optimizers.first_state import state_of_first_step
from milepost.adapters.torch.optimizers.gradients import is_watched, mark_as_used, unused_gradients
from milepost.adapters.torch.optimizers.leaves import is_leaf_with_gradient, keep_gradient
from milepost.adapters.torch.optimizers.param_groups import ParamGroups, remember
from milepost.adapters.torch.optimizers.shared_parts import shares_between_parts
from milepost.adapters.torch.optimizers.steps import watch_step
from milepost.adapters.torch.refused import refusal_of, sharded_omission
from milepost.adapters.torch.tensors import home_of
from milepost.adapters.torch.unsaved import Unsaved
from milepost.adapters.torch.views import Part, forget_view, has_view, view_of
from milepost.deferred.table import deferred_on
from milepost.errors import MilepostError, MismatchError
from milepost.graph.adapter import Adapter, adapter_of, register
from milepost.graph.keys import STATE_DICT, VARIABLE_VALUE
from milepost.graph.omissions import Accounted, Omission
from milepost.plain_state.encoding import TEXT
from milepost.tensor import TensorSpec

_GROUPS: Final = "param_groups"
_COMMON: Final = "state"
_SAVED_WHOLE: Final = "saved whole"
"""The key of the view that records whether the state of an optimizer had to be saved as a whole when it was last examined."""
_FIRST_STATE: Final = "state of the first step"
"""The key of the view that holds the rest of the state that was made for the newest parameter."""
_ORDER: Final = "order"
"""The key of the view that `_order` returns."""
_OWN: Final = frozenset({_GROUPS, _COMMON, "defaults"})
_PLAIN: Final = torch.optim.Optimizer
_CHANGING: Final = torch.optim.LBFGS
"""The class whose state may be a number after one step and a tensor after the next."""
_LIKE_PARAMETERS: Final = frozenset(
    (
        "exp_avg",
        "exp_avg_sq",
        "max_exp_avg_sq",
        "exp_inf",
        "momentum_buffer",
        "square_avg",
        "grad_avg",
        "acc_delta",
        "sum",
        "ax",
    )
)
"""State of PyTorch's own optimizers that has the shape of its parameter."""
_WRAPPERS: Final = {
    "accelerate.optimizer.AcceleratedOptimizer": "optimizer",
    "lightning.fabric.wrappers._FabricOptimizer": "_optimizer",
    "lightning_fabric.wrappers._FabricOptimizer": "_optimizer",
}
"""Classes, by name, that wrap an optimizer and have no state of their own, each with the attribute that holds the optimizer."""
_SAVING: Final = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")
_LOADING: Final = ("_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")


class TorchOptimizerAdapter(Adapter):
    """`torch.optim.Optimizer`."""

    slots_are_children = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, torch.optim.Optimizer)

    def account(self, obj: Any) -> Iterable[Accounted]:
        obj = unwrapped(obj)
        if _is_saved_whole(obj):
            return
        for parameter, state in obj.state.items():
            if isinstance(parameter, torch.Tensor):
                refusal = refusal_of(parameter)
                remedy = "" if refusal is None else refusal.remedy
                for name, value in state.items():
                    yield Accounted((name,), value, parameter, remedy)
            else:
                yield Accounted((_COMMON,), state)
        for position, group in enumerate(obj.param_groups):
            for name, value in group.items():
                if name not in NO_STATE:
                    yield Accounted((_GROUPS, str(position), name), value)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        obj = unwrapped(obj)
        sharded = sharded_omission(obj)
        if sharded is not None:
            yield STATE_DICT, Unsaved(sharded)
            return
        remembered: dict[str, bool] = view_of(obj, _SAVED_WHOLE, dict)
        remembered["is"] = _needs_whole_state(obj)
        is_whole = _is_saved_whole(obj)
        if is_whole:
            yield STATE_DICT, _whole_state(obj)
        else:
            yield _GROUPS, view_of(obj, _GROUPS, ParamGroups, obj)
            if not all(isinstance(key, torch.Tensor) for key in obj.state):
                yield _COMMON, _common(obj)
        for name, value in list(vars(obj).items()):
            # Optimizers inside an optimizer, unless its state_dict holds them. Tensors and numbers in attributes are settings.
            if name in _OWN or name.startswith("_") or (is_whole and isinstance(value, torch.optim.Optimizer)):
                continue
            if _is_state(value):
                yield name, value

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        vars(unwrapped(obj)).update(changes)
        return obj

    def stand_ins(self, obj: Any, saved: Iterable[str]) -> Iterable[tuple[str, Any]]:
        optimizer = unwrapped(obj)
        yield _COMMON, _common(optimizer)
        if STATE_DICT in saved:
            yield STATE_DICT, _whole_state(optimizer)

    def has_slots(self, obj: Any) -> bool:
        return not _is_saved_whole(unwrapped(obj))

    def slot_names(self, obj: Any) -> Sequence[str]:
        names: dict[str, None] = {}
        for parameter, state in unwrapped(obj).state.items():
            if isinstance(parameter, torch.Tensor):
                names.update(dict.fromkeys(state or (EMPTY,)))
        return list(names)

    def slot(self, obj: Any, variable: Any, name: str) -> Any:
        obj = unwrapped(obj)
        # Reading a missing key of `state` would add it.
        if not isinstance(variable, torch.Tensor) or variable not in obj.state:
            return None
        if name == EMPTY:
            return None if obj.state[variable] else _empty(obj, variable)
        if name not in obj.state[variable]:
            return None
        value = obj.state[variable][name]
        if not isinstance(value, torch.Tensor) or isinstance(obj, _CHANGING) or refusal_of(value) is not None:
            return _part(obj, variable, name)
        if not is_dtensor(value):
            if is_dtensor(variable) and value.ndim:
                keep_hint(value, PLAIN)
            elif unlike_layout(value, variable):
                keep_layout(value)
        if is_leaf_with_gradient(value) and _group_of(obj, value) is None:
            keep_gradient(value)
        return value

    def make_slot(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> Any:
        obj = unwrapped(obj)
        group = _group_of(obj, variable)
        if group is None:
            return None
        if name == EMPTY:
            obj.state.setdefault(variable, {})
            return _empty(obj, variable)
        if TEXT in saved or not saved.keys() - HINTS or isinstance(obj, _CHANGING):
            obj.state[variable][name] = None
            return _part(obj, variable, name)
        (local_name, spec), *others = ((name, spec) for name, spec in saved.items() if name not in HINTS)
        dtype = torch_dtype(spec.dtype) if local_name == VARIABLE_VALUE else None
        if others or dtype is None:
            first: dict[str, Any] = view_of(obj, _FIRST_STATE, dict)
            # one step makes all parts of the state of a parameter
            if first.get("of") is not variable or name not in first["state"]:
                first.update(of=variable, state=state_of_first_step(obj, group, variable))
            made = first["state"].pop(name, None)
            if isinstance(made, torch.Tensor):
                obj.state[variable][name] = made
                return made
            raise MismatchError(
                "the saved state is a tensor of a special class, which only the optimizer can make",
                expected="a tensor in the state of the live optimizer",
                found=f"none there, and in the checkpoint one that consists of {', '.join(sorted(saved))}",
                remedy="let the optimizer take one step before the restore",
            )
        shape = spec.shape
        is_plain = PLAIN in saved or not is_dtensor(variable)
        if not is_plain and shape:
            obj.state[variable][name] = slot = new_dtensor(variable, shape, dtype)
            return slot
        device = home_of_shard(variable) if is_dtensor(variable) else home_of(variable)
        if not shape and not (group.get("capturable") or group.get("fused") or isinstance(obj, torch.optim.ASGD)):
            device = torch.device("cpu")
        if STRIDES in saved:
            slot = torch.empty(shape, dtype=dtype, device=device)
            keep_layout(slot)
        elif shape == tuple(variable.shape) and not is_dtensor(variable):
            slot = torch.empty_like(variable, dtype=dtype, device=device, requires_grad=False)
        else:
            slot = torch.empty(shape, dtype=dtype, device=device)
        if GRADIENT in saved:
            keep_gradient(slot)
        obj.state[variable][name] = slot
        return slot

    def slot_fits(self, obj: Any, variable: Any, name: str, saved: Mapping[str, TensorSpec]) -> bool:
        obj = unwrapped(obj)
        if name == EMPTY or isinstance(obj, _CHANGING) or _group_of(obj, variable) is None:
            return True
        value = obj.state[variable][name]
        if not isinstance(value, torch.Tensor):
            return VARIABLE_VALUE not in saved
        if TEXT in saved or VARIABLE_VALUE not in saved:
            return TEXT not in saved
        if saved[VARIABLE_VALUE] != TensorSpec(dtype_of(value.dtype), tuple(value.shape)):
            return False
        if is_dtensor(value):
            return PLAIN not in saved
        if GRADIENT in saved and not is_leaf_with_gradient(value):
            return False
        if STRIDES in saved:
            keep_layout(value)  # so that it gets other memory if the saved strides, which are read later, are others
            return True
        return is_dtensor(variable) or is_made_alike(value, variable)

    def share_slot(self, obj: Any, variable: Any, name: str, slot: Any) -> Callable[[], object] | None:
        obj = unwrapped(obj)
        if _group_of(obj, variable) is None or not isinstance(slot, torch.Tensor):
            return None
        undo = self.before_make_slot(obj, variable, name)
        obj.state[variable][name] = slot
        return undo

    def before_make_slot(self, obj: Any, variable: Any, name: str) -> Callable[[], object]:
        obj = unwrapped(obj)
        if variable is None:
            return partial(_put_back, obj, _common_state(obj))
        if variable not in obj.state:
            return lambda: self.drop_slot(obj, variable, name)
        state = obj.state[variable]
        former = dict(state)

        def put_back() -> None:
            state.clear()
            state.update(former)
            _put_back(obj, {variable: state})

        return put_back

    def removable_slots(self, obj: Any, saved: Collection[str]) -> Iterable[tuple[Any, str]]:
        obj = unwrapped(obj)
        if STATE_DICT in saved or _is_saved_whole(obj):
            return
        _order(obj)[:] = map(id, obj.state)
        for parameter, state in obj.state.items():
            if isinstance(parameter, torch.Tensor):
                if state:
                    forget_view(obj, (id(parameter), EMPTY))
                for name in state or (EMPTY,):
                    yield parameter, name
        if _COMMON not in saved and _common_state(obj):
            yield None, _COMMON

    def drop_slot(self, obj: Any, variable: Any, name: str) -> None:
        obj = unwrapped(obj)
        if variable is None:
            for key in _common_state(obj):
                del obj.state[key]
            return
        forget_view(obj, (id(variable), name))
        if variable in obj.state:
            obj.state[variable].pop(name, None)
            if not obj.state[variable] and not has_view(obj, (id(variable), EMPTY)):
                del obj.state[variable]

    def on_restored(self, obj: Any) -> None:
        inside = unwrapped(obj)
        _check_shapes(inside)
        _set_what_its_class_sets(inside)
        if _overrides_loading(inside) and not _is_saved_whole(inside) and not deferred_on(obj):
            _load_again(inside)
        remember(inside)
        mark_as_used(inside)

    def on_attached(self, obj: Any) -> None:
        if not is_watched(unwrapped(obj)):
            mark_as_used(unwrapped(obj))

    def unfinished(self, obj: Any) -> Omission | None:
        return unused_gradients(unwrapped(obj))

    def on_deferred(self, obj: Any) -> None:
        watch_step(unwrapped(obj), obj)


def unwrapped(optimizer: Any) -> Any:
    """The optimizer inside all wrappers."""
    while True:
        names = (f"{base.__module__}.{base.__qualname__}" for base in type(optimizer).__mro__)
        attribute = next((_WRAPPERS[name] for name in names if name in _WRAPPERS), None)
        if attribute is None:
            return optimizer
        optimizer = vars(optimizer)[attribute]


def _is_saved_whole(optimizer: Any) -> bool:
    """Whether an optimizer is saved by its ``state_dict``, because that may hold something else than its state and its groups."""
    attributes = vars(optimizer)
    if type(optimizer).state_dict is not _PLAIN.state_dict or STATE_DICT in attributes:
        return True
    if any(attributes.get(name) for name in _SAVING):
        return True
    remembered: dict[str, bool] = view_of(optimizer, _SAVED_WHOLE, dict)
    return remembered.get("is", False)


def _needs_whole_state(optimizer: Any) -> bool:
    """Whether the present state of an optimizer cannot be divided into slot variables and hyperparameters."""
    if any(
        type(state) is not dict or not all(type(name) is str and name != EMPTY for name in state)
        for key, state in optimizer.state.items()
        if isinstance(key, torch.Tensor)
    ):
        return True
    return shares_between_parts(optimizer)


def _check_shapes(optimizer: Any) -> None:
    """Checks the shapes of the state of one of PyTorch's own optimizers.

    Raises:
        MismatchError: One is not that of its parameter, so the next step would fail.
    """
    if not type(optimizer).__module__.startswith("torch.optim."):
        return
    for parameter, state in optimizer.state.items():
        if not isinstance(parameter, torch.Tensor) or is_dtensor(parameter) or not isinstance(state, dict):
            continue
        for name, value in state.items():
            if name in _LIKE_PARAMETERS and isinstance(value, torch.Tensor) and value.shape != parameter.shape:
                raise MismatchError(
                    "the saved state of an optimizer belongs to a parameter of another shape; nothing was changed",
                    expected=f"shape {tuple(parameter.shape)}, as the live parameter has it",
                    found=f"shape {tuple(value.shape)} of {name!r} of {_called(optimizer, parameter)}",
                    remedy="give the parameter the saved shape, or pass its name as ignore to the restore, which leaves out its state too",
                )


def _called(optimizer: Any, parameter: Any) -> str:
    """A parameter as errors call it: by its name, if the program has given names to the optimizer, and its position."""
    for number, group in enumerate(optimizer.param_groups):
        for position, trained in enumerate(group["params"]):
            if trained is parameter:
                name = f"{group['param_names'][position]!r}, " if "param_names" in group else ""
                return f"{name}parameter {position} of group {number}"
    return "a parameter in no group"


def _set_what_its_class_sets(optimizer: Any) -> None:
    """Gives groups the hyperparameters that loading sets, whatever was saved: AdamW decouples the decay also if Adam was saved."""
    if type(optimizer).__setstate__ is _PLAIN.__setstate__:
        return
    for group in optimizer.param_groups:
        for name, value in as_loaded(optimizer, group).items():
            former = group.get(name, value)
            if value is not former and type(value) in PLAIN_SETTINGS and type(former) in PLAIN_SETTINGS:
                group[name] = value


def _overrides_loading(optimizer: Any) -> bool:
    """Whether loading the state of an optimizer may do something else than copy values."""
    attributes = vars(optimizer)
    if type(optimizer).load_state_dict is not _PLAIN.load_state_dict or "load_state_dict" in attributes:
        return True
    return any(attributes.get(name) for name in _LOADING)


def _load_again(optimizer: Any) -> None:
    """Makes an optimizer load the state that it holds already, so that its class and its hooks do what they do on loading.

    The restored state is put back afterwards, because loading may convert it to the parameters' element type.
    """
    states = {parameter: dict(state) for parameter, state in optimizer.state.items() if isinstance(state, dict)}
    groups = [dict(group) for group in optimizer.param_groups]
    optimizer.load_state_dict(optimizer.state_dict())
    for parameter, state in states.items():
        optimizer.state[parameter].update(state)
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        group.update(settings)


def _whole_state(optimizer: Any) -> Part:
    name = f"the state_dict() of a {type(optimizer).__name__}"
    return view_of(
        optimizer,
        STATE_DICT,
        lambda: Part(optimizer, _state_dict_of, lambda owner, state: owner.load_state_dict(state), name),
    )


def _state_dict_of(optimizer: Any) -> Any:
    try:
        return optimizer.state_dict()
    except MilepostError:
        raise
    except Exception as error:
        raise state_dict_fails(optimizer, error) from error


def _part(optimizer: Any, parameter: Any, name: str) -> Part:
    def put(owner: Any, value: Any) -> None:
        state = owner.state[parameter]
        state[name] = into(state.get(name), value)

    def make() -> Part:
        return Part(optimizer, lambda owner: owner.state[parameter][name], put, f"the state {name!r}")

    return view_of(optimizer, (id(parameter), name), make)


def _empty(optimizer: Any, parameter: Any) -> Part:
    """The part that stands for the empty state of a parameter."""
    name = "the empty state of a parameter"
    return view_of(
        optimizer, (id(parameter), EMPTY), lambda: Part(optimizer, lambda owner: {}, lambda owner, state: None, name)
    )


def _group_of(optimizer: Any, parameter: Any) -> Any:
    """The group of a parameter, or None if the optimizer does not train it."""
    now = [(id(group), *map(id, group["params"][-1:]), len(group["params"])) for group in optimizer.param_groups]
    index: dict[str, Any] = view_of(optimizer, "group of parameter", dict)
    if index.get("of") != now:
        groups = {id(each): (each, group) for group in optimizer.param_groups for each in group["params"]}
        index.update(of=now, groups=groups)
    trained, group = index["groups"].get(id(parameter), (None, None))
    return group if trained is parameter else None


def _common(optimizer: Any) -> Part:
    return view_of(optimizer, _COMMON, lambda: Part(optimizer, _common_state, _set_common_state, "the common state"))


def _common_state(optimizer: Any) -> dict[Any, Any]:
    return {key: value for key, value in optimizer.state.items() if not isinstance(key, torch.Tensor)}


def _order(optimizer: Any) -> list[int]:
    """The identities of the keys of the state of an optimizer, in their order when a restore began to look for what it removes."""
    return view_of(optimizer, _ORDER, list)


def _put_back(optimizer: Any, entries: Mapping[Any, Any]) -> None:
    """Puts entries back into the state of an optimizer, in the order in which they were there."""
    state, is_gone = optimizer.state, not entries.keys() <= optimizer.state.keys()
    state.update(entries)
    if is_gone:
        positions = {key: position for position, key in enumerate(_order(optimizer))}
        ordered = sorted(state.items(), key=lambda entry: positions.get(id(entry[0]), len(positions)))
        state.clear()
        state.update(ordered)


def _set_common_state(optimizer: Any, state: Any) -> None:
    for key in _common_state(optimizer):
        del optimizer.state[key]
    optimizer.state.update(state)


def _is_state(value: Any) -> bool:
    if isinstance(value, (torch.Tensor, list, dict, tuple)):
        return False
    adapter = adapter_of(value)
    return adapter is not None and not adapter.leaf


register(TorchOptimizerAdapter())
