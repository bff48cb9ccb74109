"""Parameter groups of optimizers: each hyperparameter is a value.

::

    optimizer/param_groups/0/lr/.ATTRIBUTES/VARIABLE_VALUE       a number or a tensor
    optimizer/param_groups/0/betas/.ATTRIBUTES/VARIABLE_VALUE    a tuple of floats, as a vector
    optimizer/param_groups/0/.../.ATTRIBUTES/py_state            anything else, such as None

Which implementation computes a step (``fused``, ``foreach``, ``capturable``, ``differentiable``) is the program's choice
and no state. A hyperparameter that is a tensor is restored in place, for compiled steps hold it.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from milepost.adapters.optimizer_settings import NO_STATE, as_setting
from milepost.adapters.torch.memory import as_array
from milepost.adapters.torch.steps import before_step, watch_step
from milepost.adapters.torch.views import forget_view, view_of
from milepost.errors import MismatchError
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.plain_state import pack, unpack
from milepost.tensor import DType


class ParamGroups:
    """The parameter groups of an optimizer, by position."""

    __slots__ = ("__weakref__", "_optimizer")

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)

    @property
    def optimizer(self) -> Any:
        """The optimizer."""
        return self._optimizer()


class ParamGroup:
    """One parameter group.

    Attributes:
        position: Its number.
    """

    __slots__ = ("__weakref__", "_optimizer", "position")

    def __init__(self, optimizer: Any, position: int) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.position = position

    @property
    def optimizer(self) -> Any:
        """The optimizer."""
        return self._optimizer()

    @property
    def settings(self) -> dict[str, Any]:
        """The group itself."""
        group: dict[str, Any] = self.optimizer.param_groups[self.position]
        return group

    def hyperparameter(self, name: str) -> Hyperparameter:
        """The hyperparameter of this name, whether the group has it yet or not."""
        return view_of(self, name, lambda: Hyperparameter(self, name))


class Hyperparameter:
    """One hyperparameter of a group.

    Attributes:
        group: The group.
        name: Its name there.
    """

    __slots__ = ("__weakref__", "_group", "name")

    def __init__(self, group: ParamGroup, name: str) -> None:
        self._group = weakref.ref(group)
        self.name = name

    @property
    def settings(self) -> dict[str, Any]:
        """The group itself."""
        group = self._group()
        return {} if group is None else group.settings


class ParamGroupsAdapter(Adapter):
    """`ParamGroups`."""

    def handles(self, kind: type) -> bool:
        return kind is ParamGroups

    def children(self, obj: ParamGroups) -> Iterable[tuple[str, Any]]:
        optimizer = obj.optimizer
        for position in range(len(optimizer.param_groups)):
            yield str(position), _group(optimizer, position)

    def watch(self, obj: ParamGroups) -> None:
        watch_step(obj.optimizer, obj)

    def settled(self, obj: ParamGroups) -> None:
        remember(obj.optimizer)


class ParamGroupAdapter(Adapter):
    """`ParamGroup`."""

    def handles(self, kind: type) -> bool:
        return kind is ParamGroup

    def children(self, obj: ParamGroup) -> Iterable[tuple[str, Any]]:
        for name in obj.settings:
            if name not in NO_STATE:
                yield name, obj.hyperparameter(name)

    def stand_ins(self, obj: ParamGroup, saved: Collection[str]) -> Iterable[tuple[str, Any]]:
        # Schedulers add some when they are made.
        for name in saved:
            if name not in obj.settings:
                yield name, obj.hyperparameter(name)


class HyperparameterAdapter(Adapter):
    """`Hyperparameter`: takes a number for a tensor and the other way round."""

    open_ended = True

    def handles(self, kind: type) -> bool:
        return kind is Hyperparameter

    def values(self, obj: Hyperparameter) -> Sequence[Value]:
        if obj.name not in obj.settings:
            return ()
        packed = _packed(obj.settings[obj.name], obj.name)
        return [Value(name, DType.of(array), array.shape, array) for name, array in packed.items()]

    def assign(self, obj: Hyperparameter, arrays: Mapping[str, Array]) -> Hyperparameter:
        settings, present = obj.settings, obj.settings.get(obj.name)
        if VARIABLE_VALUE not in arrays:
            settings[obj.name] = unpack(arrays)
            return obj
        array = arrays[VARIABLE_VALUE]
        if array.ndim > 1 or array.dtype.kind not in "biuf":
            raise MismatchError(
                "this is no value for a hyperparameter",
                key=obj.name,
                expected="a number, or several",
                found=f"{DType.of(array)} of shape {array.shape}",
                remedy="restore into an optimizer of the kind that was saved",
            )
        if isinstance(present, torch.Tensor) and present.shape == array.shape:
            with torch.no_grad():
                present.copy_(torch.from_numpy(np.array(array)))
        elif array.ndim:
            kind = list if isinstance(present, list) else tuple
            settings[obj.name] = kind(array.tolist())
        else:
            settings[obj.name] = array.item()
        return obj


def remember(optimizer: Any) -> None:
    """Keeps the hyperparameters as they are now until the next step, for a scheduler that is made before that."""
    kept = [
        {name: copy.deepcopy(value) for name, value in group.items() if name not in NO_STATE}
        for group in optimizer.param_groups
    ]
    holder: dict[str, Any] = view_of(optimizer, "hyperparameters", dict)
    holder["kept"] = kept
    before_step(optimizer, _forget)


def recall(optimizer: Any) -> None:
    """Gives an optimizer back what a restore gave it, which the making of a scheduler has changed."""
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


def _forget(optimizer: Any, arguments: Any, keywords: Any) -> None:
    forget_view(optimizer, "hyperparameters")


def _group(optimizer: Any, position: int) -> ParamGroup:
    return view_of(optimizer, ("group", position), lambda: ParamGroup(optimizer, position))


def _packed(value: Any, name: str) -> Mapping[str, Array]:
    if isinstance(value, torch.Tensor) and value.ndim < 2:
        return {VARIABLE_VALUE: as_array(value)}
    array = as_setting(value)
    return pack(value, name) if array is None else {VARIABLE_VALUE: array}


for _adapter in (ParamGroupsAdapter(), ParamGroupAdapter(), HyperparameterAdapter()):
    register(_adapter)
