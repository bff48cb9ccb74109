"""Parameter groups of optimizers: each hyperparameter is a value.

::

    optimizer/param_groups/0/lr/.ATTRIBUTES/VARIABLE_VALUE       a number, or a tensor, which has a py_state too
    optimizer/param_groups/0/betas/.ATTRIBUTES/VARIABLE_VALUE    a tuple of floats, as a vector
    optimizer/param_groups/0/.../.ATTRIBUTES/py_state            anything else, such as None

The implementation of a step (``fused``, ``foreach``, ``capturable``, ``differentiable``) is a choice of the program, and is not
saved. A hyperparameter is restored with its saved type, number or tensor. A tensor is restored in place if the saved one has its
element type and shape, because compiled steps refer to it. A tensor that the program passed to the optimizer is also restored in
place from a saved number.

Many optimizers count steps in a group. What steps have added to a group since the save is removed, as ``load_state_dict`` removes it.
What the optimizer's class needs and what schedulers have added stays.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from milepost.adapters.optimizer_settings import NO_STATE, as_setting
from milepost.adapters.torch.in_place import into
from milepost.adapters.torch.optimizers.gradients import has_stepped
from milepost.adapters.torch.optimizers.late_groups import watch_groups
from milepost.adapters.torch.optimizers.steps import before_step, has_hooks, watch_step
from milepost.adapters.torch.plain_tensors import is_plain
from milepost.adapters.torch.views import forget_view, view_of
from milepost.errors import MismatchError, UnsupportedError
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.plain_state.decoding import unpack
from milepost.plain_state.encoding import TEXT, pack, to_text
from milepost.plain_state.part import IS_STATE
from milepost.tensor import DType

_OF_SCHEDULERS: Final = frozenset(
    {"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "initial_momentum", "swa_lr"}
)
"""What the schedulers of PyTorch add to a group when they are made."""


class _View:
    """Represents the parameter groups of an optimizer, one of the groups, or one hyperparameter.

    Attributes:
        optimizer: A weak reference to the optimizer.
        position: The number of the group.
        name: The name of the hyperparameter.
    """

    __slots__ = ("__weakref__", "name", "optimizer", "position")

    def __init__(self, optimizer: Any, position: int = 0, name: str = "") -> None:
        self.optimizer = weakref.ref(optimizer)
        self.position = position
        self.name = name


class ParamGroups(_View):
    """The parameter groups of an optimizer, by position."""

    __slots__ = ()


class ParamGroup(_View):
    """One parameter group."""

    __slots__ = ()


class GroupHyperparameter(_View):
    """One hyperparameter of a group. The group need not have it yet."""

    __slots__ = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The group."""
        optimizer = self.optimizer()
        return {} if optimizer is None else optimizer.param_groups[self.position]

    @property
    def is_given(self) -> bool:
        """Whether the program passed this value to the optimizer, and no step has replaced it."""
        optimizer = self.optimizer()
        if optimizer is None:
            return False
        return isinstance(optimizer.defaults.get(self.name), torch.Tensor) or not optimizer.state


class ParamGroupsAdapter(Adapter):
    """`ParamGroups`."""

    saved_whole = True

    def handles(self, kind: type) -> bool:
        return kind is ParamGroups

    def children(self, obj: ParamGroups) -> Iterable[tuple[str, Any]]:
        optimizer: Any = obj.optimizer()
        for position in range(len(optimizer.param_groups)):
            yield str(position), view_of(optimizer, ("group", position), ParamGroup, optimizer, position)

    def on_deferred(self, obj: ParamGroups) -> None:
        watch_groups(obj)
        watch_step(obj.optimizer(), obj)  # for a group that is appended to the list

    def on_restored(self, obj: ParamGroups) -> None:
        remember(obj.optimizer())


class ParamGroupAdapter(Adapter):
    """`ParamGroup`."""

    def handles(self, kind: type) -> bool:
        return kind is ParamGroup

    def children(self, obj: ParamGroup) -> Iterable[tuple[str, Any]]:
        optimizer: Any = obj.optimizer()
        for name in optimizer.param_groups[obj.position]:
            if name not in NO_STATE:
                key = ("group", obj.position, name)
                yield name, view_of(optimizer, key, GroupHyperparameter, optimizer, obj.position, name)

    def stand_ins(self, obj: ParamGroup, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        # Schedulers add hyperparameters when they are made.
        optimizer: Any = obj.optimizer()
        for name in saved:
            if name not in optimizer.param_groups[obj.position]:
                key = ("group", obj.position, name)
                yield name, view_of(optimizer, key, GroupHyperparameter, optimizer, obj.position, name)

    def removable_slots(self, obj: ParamGroup, saved: Collection[str]) -> Iterable[tuple[Any, str]]:
        optimizer: Any = obj.optimizer()
        if not has_stepped(optimizer):  # all that is in the group is the program's choice
            return
        stay = NO_STATE | _OF_SCHEDULERS | getattr(optimizer, "defaults", {}).keys() | set(saved)
        for name in optimizer.param_groups[obj.position]:
            if name not in stay:
                yield None, name

    def before_make_slot(self, obj: ParamGroup, variable: Any, name: str) -> Callable[[], object]:
        optimizer: Any = obj.optimizer()
        settings = optimizer.param_groups[obj.position]
        former = dict(settings)

        def put_back() -> None:
            settings.clear()
            settings.update(former)

        return put_back

    def drop_slot(self, obj: ParamGroup, variable: Any, name: str) -> None:
        optimizer: Any = obj.optimizer()
        del optimizer.param_groups[obj.position][name]
        forget_view(optimizer, ("group", obj.position, name))


class GroupHyperparameterAdapter(Adapter):
    """`GroupHyperparameter`. A saved number can be restored into a tensor, and a saved tensor into a number."""

    open_ended = True

    def handles(self, kind: type) -> bool:
        return kind is GroupHyperparameter

    def values(self, obj: GroupHyperparameter) -> Sequence[Value]:
        settings = obj.settings
        if obj.name not in settings:
            return ()
        try:
            packed = _packed(settings[obj.name])
        except UnsupportedError as error:
            at = f", at {error.key!r} in it" if error.key else ""
            error.key, error.found = None, f"{error.found}{at}"
            error.remedy = "give the group a number, text, None or a tensor there, or a list, tuple or dict of them"
            raise
        as_text = VARIABLE_VALUE not in packed
        return [
            Value(name, DType.of(array), array.shape, array, skipped_by_tensorflow=name == TEXT and not as_text)
            for name, array in packed.items()
        ]

    def hints_to_save(self, obj: GroupHyperparameter) -> Mapping[str, Array]:
        is_number = as_setting(obj.settings.get(obj.name, 0)) is not None
        return {} if is_number else IS_STATE

    def before_assign(self, obj: GroupHyperparameter) -> Callable[[], object]:
        settings, name = obj.settings, obj.name
        if name not in settings:
            return lambda: settings.pop(name, None)
        try:
            kept = _copy(settings[name])
        except Exception:  # for example of a tensor in a list that was computed from other tensors
            return lambda: None

        def put_back() -> None:
            settings[name] = into(settings.get(name), kept)

        return put_back

    def assign(self, obj: GroupHyperparameter, arrays: Mapping[str, Array]) -> GroupHyperparameter:
        settings, present = obj.settings, obj.settings.get(obj.name)
        if TEXT in arrays or VARIABLE_VALUE not in arrays:
            settings[obj.name] = into(present, unpack(arrays))
            return obj
        array = arrays[VARIABLE_VALUE]
        if array.ndim > 1 or array.dtype.kind not in "biuf":
            raise MismatchError(
                "this is not the value of a hyperparameter",
                expected="a number, or several",
                found=f"{DType.of(array)} of shape {array.shape}",
                remedy="restore into an optimizer of the kind that was saved",
            )
        if isinstance(present, torch.Tensor) and present.shape == array.shape and obj.is_given:
            with torch.no_grad():
                present.copy_(torch.from_numpy(np.array(array)))
        elif array.ndim:
            settings[obj.name] = tuple(array.tolist())
        else:
            settings[obj.name] = array.item()
        return obj


def remember(optimizer: Any) -> None:
    """Keeps copies of the hyperparameters until the next step, for `recall`."""
    if not has_hooks(optimizer):
        return
    kept = [
        {name: _copy(value) for name, value in group.items() if name not in NO_STATE}
        for group in optimizer.param_groups
    ]
    holder: dict[str, Any] = view_of(optimizer, "hyperparameters", dict)
    holder["kept"] = kept
    before_step(optimizer, _forget)


def recall(optimizer: Any) -> None:
    """Restores the hyperparameters that `remember` has kept, after a new scheduler has changed them."""
    holder: dict[str, Any] = view_of(optimizer, "hyperparameters", dict)
    kept: list[dict[str, Any]] = holder.get("kept", [])
    for group, settings in zip(optimizer.param_groups, kept, strict=False):
        for name, value in settings.items():
            present = group.get(name)
            if isinstance(present, torch.Tensor) and isinstance(value, torch.Tensor):
                with torch.no_grad():
                    present.copy_(value)
            else:
                group[name] = value


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _forget(optimizer: Any, arguments: Any, keywords: Any) -> None:
    forget_view(optimizer, "hyperparameters")


def _packed(value: Any) -> Mapping[str, Array]:
    number = as_setting(value)
    if number is not None:
        return {VARIABLE_VALUE: number}
    if is_plain(value) and value.ndim < 2:
        arrays: dict[str, Array] = {}

        def store(array: Array, path: str) -> dict[str, Any]:
            arrays[VARIABLE_VALUE] = array
            return {"entry": VARIABLE_VALUE}

        arrays[TEXT] = np.empty((), object)
        arrays[TEXT][()] = to_text(value, "", store).encode()
        return arrays
    return pack(value)


for _adapter in (ParamGroupsAdapter(), ParamGroupAdapter(), GroupHyperparameterAdapter()):
    register(_adapter)
