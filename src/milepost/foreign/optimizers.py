"""The state of PyTorch optimizers, which files store by the position of the parameter.

::

    {"state": {0: {"exp_avg": tensor, ...}, ...}, "param_groups": [{"lr": 0.1, ..., "params": [0, 1]}, ...]}

The position is that of the parameter in the groups. So the live optimizer must be made with the same parameters in the same order,
as for PyTorch's own ``load_state_dict``.

Files of older versions of PyTorch lack hyperparameters that were added later. ``load_state_dict`` sets these to defaults that
``__setstate__`` of the optimizer's class adds, whatever the live optimizer has. milepost calls ``__setstate__`` of a new object to
know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from milepost.adapters.optimizer_settings import NO_STATE, as_setting
from milepost.bundle.memory import Array
from milepost.errors import MismatchError, UnsupportedError
from milepost.foreign.items import Item
from milepost.foreign.packed import packed
from milepost.foreign.stored import Stored
from milepost.graph.keys import VARIABLE_VALUE
from milepost.plain_state.encoding import TEXT

Values = Mapping[str, tuple[str, Array | Stored]]
"""By local name, the key and the value."""

STATE: Final = "state"
GROUPS: Final = "param_groups"
_PARAMETERS: Final = "params"
_INTEGER_STEPS: Final = frozenset({"SparseAdam", "LBFGS", "Optimizer"})
_NOW_TENSORS: Final = frozenset({"step", "mu_product", "eta", "mu"})
"""State of a parameter that was a number before PyTorch 1.12 or 2.0, and is a tensor now."""


def is_optimizer_state(item: Item) -> bool:
    """Whether an item is the ``state_dict()`` of a PyTorch optimizer."""
    value = item.value
    if item.opaque is not None:
        return False
    return isinstance(value, Mapping) and isinstance(value.get(STATE), Mapping) and isinstance(value.get(GROUPS), list)


class OptimizerState:
    """The saved state of one optimizer, by the live one's parameters.

    Args:
        item: What the file holds.
        optimizer: The live optimizer.

    Raises:
        MismatchError: The live optimizer has other parameter groups.
        UnsupportedError: A group in the file does not list its parameters.
    """

    def __init__(self, item: Item, optimizer: Any) -> None:
        self._item = item
        self._groups: list[Mapping[str, Any]] = item.value[GROUPS]
        self._optimizer = optimizer
        self._steps_are_tensors = any(
            kind.__module__.startswith("torch.optim.") and kind.__name__ not in _INTEGER_STEPS
            for kind in type(optimizer).__mro__
        ) and not any(kind.__name__ in ("SparseAdam", "LBFGS") for kind in type(optimizer).__mro__)
        saved = [_positions(group, item.key) for group in self._groups]
        live = [list(group[_PARAMETERS]) for group in optimizer.param_groups]
        if [len(positions) for positions in saved] != [len(parameters) for parameters in live]:
            raise MismatchError(
                "the state of an optimizer belongs to other parameter groups; nothing was changed",
                key=item.key,
                expected=f"groups of {', '.join(str(len(each)) for each in live)} parameters, as the live optimizer has",
                found=f"groups of {', '.join(str(len(each)) for each in saved)} parameters",
                remedy="make the optimizer with the parameters of the one that was saved, in the same order",
            )
        self._parameters = {
            str(position): parameter
            for positions, parameters in zip(saved, live, strict=True)
            for position, parameter in zip(positions, parameters, strict=True)
        }

    def settings(self) -> list[dict[str, Values]]:
        """The hyperparameters of each group."""
        found = []
        for number, _ in enumerate(self._groups):
            group = self._item.children[GROUPS].children[str(number)]
            found.append({name: _setting(child) for name, child in group.children.items() if name not in NO_STATE})
        return found

    def defaults(self) -> list[dict[str, Values]]:
        """For each group, the hyperparameters that the file lacks and for which PyTorch has defaults."""
        found = []
        for number, group in enumerate(self._groups):
            key = self._item.children[GROUPS].children[str(number)].key
            added = {
                name: value
                for name, value in _made_up(self._optimizer, group).items()
                if name not in group and name not in NO_STATE and type(value) in _PLAIN
            }
            found.append({name: _setting(Item(f"{key}/{name}", value)) for name, value in added.items()})
        return found

    def slots(self) -> Iterator[tuple[Any, str, Values]]:
        """The state of each parameter: the live parameter, the state's name, its values."""
        for position, item in self._item.children[STATE].children.items():
            parameter = self._parameters.get(position)
            if parameter is None:
                continue
            for name, child in item.children.items():
                yield parameter, name, self._state(name, child)

    def common(self) -> dict[str, Values]:
        """The state that does not belong to a parameter."""
        names = [name for name in self._item.value[STATE] if str(name) not in self._parameters]
        if not names:
            return {}
        rest = {name: self._item.value[STATE][name] for name in names}
        return {STATE: _packed(f"{self._item.key}/{STATE}", rest)}

    def _state(self, name: str, item: Item) -> Values:
        if not item.has_value:
            raise UnsupportedError(
                "the state of an optimizer has a name with dots",
                key=item.key,
                expected="names without dots, as optimizers of PyTorch have",
                remedy="rename it in the file, or restore the model without the optimizer",
            )
        if isinstance(item.value, Stored):
            return {item.value.local: (item.key, item.value)}
        if name in _NOW_TENSORS and self._steps_are_tensors and type(item.value) in (int, float):
            # The present optimizers of PyTorch need tensors here.
            return {VARIABLE_VALUE: (item.key, np.array(item.value, np.float32))}
        return _packed(item.key, item.value)


_PLAIN: Final = (bool, int, float, str, type(None))


def _made_up(optimizer: Any, group: Mapping[str, Any]) -> Mapping[str, Any]:
    """A parameter group with the defaults that the optimizer's class adds to a new object."""
    kind = type(optimizer)
    tried = {name: value if type(value) in _PLAIN else None for name, value in group.items()}
    tried[_PARAMETERS] = []
    try:
        probe: Any = object.__new__(kind)
        probe.__dict__["defaults"] = dict(optimizer.defaults)
        probe.__setstate__({"state": {}, "param_groups": [tried]})
    except Exception:  # the class may expect anything of its objects
        return {}
    return tried


def _positions(group: Any, key: str) -> list[Any]:
    positions = group.get(_PARAMETERS) if isinstance(group, Mapping) else None
    if not isinstance(positions, (list, tuple)):
        raise UnsupportedError(
            "a parameter group does not list its parameters",
            key=key,
            expected=f"a dict with the member {_PARAMETERS!r}",
            found=f"an object of type {type(group).__name__}",
            remedy="restore the model without the optimizer",
        )
    return list(positions)


def _setting(item: Item) -> Values:
    """A hyperparameter as the live optimizer would save it."""
    value = item.value
    if isinstance(value, Stored):
        return {value.local: (item.key, value)}
    array = as_setting(value)
    if array is None:
        return _packed(item.key, value)
    # The members of a tuple have keys below the key of the tuple.
    return {VARIABLE_VALUE: (f"{item.key}/{VARIABLE_VALUE}" if array.ndim else item.key, array)}


def _packed(key: str, value: Any) -> Values:
    return {
        local: (f"{key}/{TEXT}" if local == TEXT else f"{key}/{TEXT}/{local}", each)
        for local, each in packed(value, key, "torch").items()
    }
