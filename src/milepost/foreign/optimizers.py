"""The state of PyTorch optimizers, which files store by the position or the name of the parameter.

::

    {"state": {0: {"exp_avg": tensor, ...}, ...}, "param_groups": [{"lr": 0.1, ..., "params": [0, 1]}, ...]}
    {"state": {"l1.weight": {...}, ...}, "param_groups": [{"lr": 0.1, ..., "params": ["l1.weight", "l1.bias"]}, ...]}
    {"state.l1.weight.exp_avg": tensor, ..., "param_groups.l1.weight.lr": 0.1, ...}

The first is what ``state_dict()`` of an optimizer returns. The position is that of the parameter in the groups. So the live optimizer
must be made with the same parameters in the same order, as for PyTorch's own ``load_state_dict``. The others are what
``get_optimizer_state_dict`` of `torch.distributed.checkpoint.state_dict` returns, the last with ``flatten_optimizer_state_dict=True``.
A name is that of the parameter in the ``state_dict()`` of the module, so order and groups may be others.

Files of older versions of PyTorch lack hyperparameters that were added later. ``load_state_dict`` sets these to defaults that
``__setstate__`` of the optimizer's class adds, whatever the live optimizer has. milepost finds these defaults by calling
``__setstate__`` of a new object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.adapters.optimizer_settings import EMPTY, NO_STATE, PLAIN_SETTINGS, STRIDES, as_loaded, as_setting
from milepost.bundle.memory import Array
from milepost.errors import MismatchError, UnsupportedError
from milepost.foreign.items import Item, levels, walked
from milepost.foreign.packed import packed
from milepost.foreign.pytorch.rebuilt import is_composed
from milepost.foreign.pytorch.tensors import strides_of, usual_strides
from milepost.foreign.stored import Stored
from milepost.graph.keys import VARIABLE_VALUE
from milepost.plain_state.encoding import TEXT

Values = Mapping[str, tuple[str, Array | Stored]]
"""By local name, the key and the value."""

STATE: Final = "state"
GROUPS: Final = "param_groups"
_PARAMETERS: Final = "params"
_MOST_LISTED: Final = 5
_OR_IGNORE: Final = "or leave out its param_groups, or all of it, with ignore"
_INTEGER_STEPS: Final = frozenset({"SparseAdam", "LBFGS", "Optimizer"})
_NOW_TENSORS: Final = frozenset({"step", "mu_product", "eta", "mu"})
"""State of a parameter that was a number before PyTorch 1.12 or 2.0, and is a tensor now."""


Find = Callable[[Sequence[str], set[int]], Mapping[str, Any]]
"""Returns live parameters by the names that one of the live modules has for them, given the names and the identities of those that
are looked for. It returns none if no module has all of the names."""


class _SavedGroup(NamedTuple):
    """A saved parameter group.

    Attributes:
        key: Its key.
        settings: Its hyperparameters.
        parameters: The live parameters, by the names or positions that the file has for them.
    """

    key: str
    settings: Mapping[str, Item]
    parameters: Mapping[str, Any]


def is_optimizer_state(item: Item) -> bool:
    """Whether an item is the state of a PyTorch optimizer, in one of the three forms."""
    value = item.value
    if item.opaque is not None or not isinstance(value, Mapping):
        return False
    if _is_flat(value):
        return True
    return isinstance(value.get(STATE, {}), Mapping) and isinstance(value.get(GROUPS), list)


def names_of_parameters(item: Item) -> list[str]:
    """The names by which the state of a PyTorch optimizer has its parameters; none if it has them by their positions."""
    if _is_flat(item.value):
        return _names_in_flat(item.value)
    groups = [group.get(_PARAMETERS) for group in item.value.get(GROUPS, ()) if isinstance(group, Mapping)]
    listed = [each for group in groups if isinstance(group, (list, tuple)) for each in group]
    return [each for each in listed if isinstance(each, str)]


class OptimizerState:
    """The saved state of one optimizer, by the parameters of the live optimizer.

    Args:
        item: The saved state.
        optimizer: The live optimizer.
        find: Finds parameters by name.
        takes_groups: Whether the live optimizer takes hyperparameters. If not, its groups may be others.

    Attributes:
        parameters: The live parameters, by the names or positions that the file has for them.
        has_groups: Whether the saved groups are those of the live optimizer.

    Raises:
        MismatchError: The live optimizer has other parameter groups, or other parameters.
        UnsupportedError: A group in the file does not list its parameters.
    """

    def __init__(self, item: Item, optimizer: Any, find: Find, *, takes_groups: bool = True) -> None:
        self._item = item
        self._optimizer = optimizer
        self._steps_are_tensors = any(
            kind.__module__.startswith("torch.optim.") and kind.__name__ not in _INTEGER_STEPS
            for kind in type(optimizer).__mro__
        ) and not any(kind.__name__ in ("SparseAdam", "LBFGS") for kind in type(optimizer).__mro__)
        live = [list(group[_PARAMETERS]) for group in optimizer.param_groups]
        try:
            self._groups = _groups(item, live, find)
            self.has_groups = True
        except MismatchError:
            parameters = None if takes_groups else _in_other_groups(item, live, find)
            if parameters is None:
                raise
            self._groups = [_SavedGroup(item.key, {}, parameters)]
            self.has_groups = False
        self.parameters = {name: each for group in self._groups for name, each in group.parameters.items()}

    def settings(self, away: Collection[str] = ()) -> list[dict[str, Values]]:
        """The hyperparameters of each group.

        Args:
            away: The keys of values to leave out, each with the hyperparameter that it is in.
        """
        return [
            {
                name: _setting(child)
                for name, child in group.settings.items()
                if name not in NO_STATE and not (away and any(each.key in away for each in walked(child)))
            }
            for group in self._groups
        ]

    def defaults(self) -> list[dict[str, Values]]:
        """For each group, the hyperparameters that the file lacks and for which PyTorch has defaults."""
        defaults = []
        for group in self._groups:
            saved = {name: child.value for name, child in group.settings.items()}
            added = {
                name: value
                for name, value in as_loaded(self._optimizer, saved).items()
                if name not in saved and name not in NO_STATE and type(value) in PLAIN_SETTINGS
            }
            defaults.append({name: _setting(Item(f"{group.key}/{name}", value)) for name, value in added.items()})
        return defaults

    def slots(self) -> Iterator[tuple[Any, str, Values, Mapping[str, Array]]]:
        """The state of each parameter: the live parameter, the state's name, its values and its hints."""
        if STATE not in self._item.children:
            return
        for saved, parameter in self.parameters.items():
            item = _at(self._item.children[STATE], saved)
            if item is None:
                continue
            if isinstance(item.value, Mapping) and not item.value:
                yield parameter, EMPTY, _packed(item.key, {}), {}
            for name, child in item.children.items():
                yield parameter, name, self._state(name, child), _hints(child, parameter)

    def common(self) -> dict[str, Values]:
        """The state that does not belong to a parameter."""
        state = self._item.value.get(STATE, {})
        rest = {name: each for name, each in state.items() if str(name) not in self.parameters}
        return {STATE: _packed(f"{self._item.key}/{STATE}", rest)} if rest else {}

    def _state(self, name: str, item: Item) -> Values:
        if not item.has_value:
            raise UnsupportedError(
                "the state of an optimizer has a name with dots",
                key=item.key,
                expected="names without dots, as optimizers of PyTorch have",
                remedy="rename it in the file, or restore the model without the optimizer",
            )
        if isinstance(item.value, Stored):
            return {VARIABLE_VALUE: (item.key, item.value)}
        if item.opaque is not None and is_composed(item.opaque):
            return {
                part: (child.key, child.value)
                for part, child in item.children.items()
                if isinstance(child.value, Stored)
            }
        if name in _NOW_TENSORS and self._steps_are_tensors and type(item.value) in (int, float):
            # The present optimizers of PyTorch need tensors here.
            return {VARIABLE_VALUE: (item.key, np.array(item.value, np.float32))}
        return _packed(item.key, item.content)


def _hints(item: Item, parameter: Any) -> Mapping[str, Array]:
    """The strides of a tensor in the state, if a restore would give it other ones without them."""
    stored = item.value if item.has_value else None
    if not isinstance(stored, Stored):
        return {}
    strides = strides_of(stored)
    with suppress(RuntimeError):  # the parameter is made later, and has no shape yet
        if strides is None and tuple(parameter.shape) == stored.spec.shape and not parameter.is_contiguous():
            strides = usual_strides(stored.spec.shape)  # otherwise it would get those of the parameter
    return {} if strides is None else {STRIDES: np.array(strides, np.int64)}


def _is_flat(value: Mapping[Any, Any]) -> bool:
    return (
        GROUPS not in value
        and all(isinstance(name, str) and name.startswith((f"{STATE}.", f"{GROUPS}.")) for name in value)
        and any(name.startswith(f"{GROUPS}.") for name in value)
    )


def _numbered_groups(item: Item, saved: list[list[Any]], live: list[list[Any]]) -> list[_SavedGroup]:
    if [len(positions) for positions in saved] != [len(parameters) for parameters in live]:
        raise MismatchError(
            "the state of an optimizer belongs to other parameter groups; nothing was changed",
            key=item.key,
            expected=f"groups of {', '.join(str(len(each)) for each in live)} parameters, as the live optimizer has",
            found=f"groups of {', '.join(str(len(each)) for each in saved)} parameters",
            remedy=f"make the optimizer with the parameters of the one that was saved, in the same order; {_OR_IGNORE}",
        )
    groups = []
    for number, (positions, parameters) in enumerate(zip(saved, live, strict=True)):
        group = item.children[GROUPS].children[str(number)]
        groups.append(_SavedGroup(group.key, group.children, dict(zip(map(str, positions), parameters, strict=True))))
    return groups


def _groups(item: Item, live: list[list[Any]], find: Find) -> list[_SavedGroup]:
    if _is_flat(item.value):
        return _flat_groups(item, live, find)
    saved = [_positions(group, item.key) for group in item.value[GROUPS]]
    if any(isinstance(each, str) for positions in saved for each in positions):
        return _named_groups(item, saved, live, find)
    return _numbered_groups(item, saved, live)


def _in_other_groups(item: Item, live: list[list[Any]], find: Find) -> dict[str, Any] | None:
    """The parameters of all live groups, by their names or positions in the file, if its groups are others. None if the shapes of the state at
    some positions tell that they are in another order, or do not tell it."""
    names = names_of_parameters(item)
    if names:
        return {name: each for group in _found(item, names, live, find) for name, each in group.items()}
    positions = [str(each) for group in item.value[GROUPS] for each in _positions(group, item.key)]
    parameters = [each for group in live for each in group]
    if len(positions) != len(parameters):
        return None
    state = item.children[STATE].children if STATE in item.children else {}
    for position, parameter in zip(positions, parameters, strict=True):
        shape = tuple(parameter.shape)
        values = [each.value for each in state[position].children.values()] if position in state else []
        if values and not any(isinstance(each, Stored) and each.spec.shape == shape for each in values):
            return None
    return dict(zip(positions, parameters, strict=True))


def _named_groups(item: Item, saved: list[list[Any]], live: list[list[Any]], find: Find) -> list[_SavedGroup]:
    names = [str(each) for group in saved for each in group]
    groups = []
    for parameters in _found(item, names, live, find):
        number = next((number for number, group in enumerate(saved) if set(map(str, group)) == parameters.keys()), None)
        if number is None:
            raise MismatchError(
                "the state of an optimizer belongs to other parameter groups; nothing was changed",
                key=item.key,
                expected="a group of " + _listed(list(parameters)) + ", as the live optimizer has",
                found="groups of " + ", ".join(str(len(each)) for each in saved) + " other parameters",
                remedy=f"make the optimizer with the groups of the one that was saved; {_OR_IGNORE}",
            )
        group = item.children[GROUPS].children[str(number)]
        groups.append(_SavedGroup(group.key, group.children, parameters))
    return groups


def _flat_groups(item: Item, live: list[list[Any]], find: Find) -> list[_SavedGroup]:
    prefix = f"{GROUPS}."
    groups = []
    for parameters in _found(item, _names_in_flat(item.value), live, find):
        members = [(name, _at(item.children[GROUPS], name)) for name in parameters]
        settings = [(name, each.children if each is not None else {}) for name, each in members]
        first_name, first = settings[0] if settings else ("", {})
        for name, others in settings[1:]:
            if _plain(others) != _plain(first):
                raise MismatchError(
                    "parameters that are in one group of the live optimizer were saved with different hyperparameters; "
                    "nothing was changed",
                    key=f"{item.key}/{prefix}{name}",
                    expected=f"those of {first_name!r:.80}: {_plain(first)!s:.200}",
                    found=f"{_plain(others)!s:.200}",
                    remedy=f"make the optimizer with the groups of the one that was saved; {_OR_IGNORE}",
                )
        groups.append(_SavedGroup(f"{item.key}/{prefix}{first_name}", first, parameters))
    return groups


def _names_in_flat(value: Mapping[str, Any]) -> list[str]:
    prefix = f"{GROUPS}."
    names = (name.removeprefix(prefix).rpartition(".")[0] for name in value if name.startswith(prefix))
    return list(dict.fromkeys(names))


def _found(item: Item, names: list[str], live: list[list[Any]], find: Find) -> list[dict[str, Any]]:
    """The parameters of each live group, by their saved names."""
    wanted = {id(parameter) for group in live for parameter in group}
    name_of = {id(parameter): name for name, parameter in find(names, wanted).items()}
    lacking = len(wanted - name_of.keys())
    if lacking or len(name_of) != len(names):
        raise MismatchError(
            "the state of an optimizer belongs to other parameters; nothing was changed",
            key=item.key,
            expected=f"the {len(wanted)} parameters of the live optimizer, in a module of the same Checkpoint",
            found=f"{len(names)} parameters: {_listed(names)}",
            remedy="put the model into the same Checkpoint, and make the optimizer with the parameters of the one that was saved",
        )
    return [{name_of[id(parameter)]: parameter for parameter in group} for group in live]


def _plain(settings: Mapping[str, Item]) -> dict[str, Any]:
    return {name: each.value for name, each in settings.items() if not isinstance(each.value, Stored)}


def _listed(names: Sequence[str]) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > _MOST_LISTED else ""
    return ", ".join(f"{name!r:.80}" for name in names[:_MOST_LISTED]) + more


def _at(item: Item, name: str) -> Item | None:
    """The item with the name of a parameter below another item. The name may stand for several levels."""
    for part in levels(name, dotted=True):
        child = item.children.get(part)
        if child is None:
            return None
        item = child
    return item


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
    array = None if isinstance(value, Stored) else as_setting(value)
    if array is None:
        return _packed(item.key, item.content)
    # The members of a tuple have keys below the key of the tuple.
    return {VARIABLE_VALUE: (f"{item.key}/{VARIABLE_VALUE}" if array.ndim else item.key, array)}


def _packed(key: str, value: Any) -> Values:
    return {
        local: (f"{key}/{TEXT}" if local == TEXT else f"{key}/{TEXT}/{local}", each)
        for local, each in packed(value, key, "torch").items()
    }
