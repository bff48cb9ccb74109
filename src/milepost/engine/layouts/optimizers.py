"""The state of optimizers of PyTorch in files of other libraries, which goes with the parameters that ``convert`` lays out otherwise.

`milepost.foreign.optimizers` describes the three forms. A file that has the state by the positions of parameters does not say which parameter has which
position, unless the optimizer was made with their names. Otherwise the parameters of an optimizer of one group are taken to have the order of a state dict
in the file that has as many, of the shapes of the state. If there is none, or there are several groups, the state cannot be converted, and it is an
error to ask for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.engine.layouts.applying import Laid, StateOf
from milepost.engine.layouts.recipes import AsSaved, NoArray, Refused
from milepost.errors import UnsupportedError
from milepost.foreign import ForeignReader
from milepost.foreign.items import Item, members
from milepost.foreign.optimizers import GROUPS, STATE, is_optimizer_state
from milepost.foreign.stored import Stored
from milepost.graph.saved.renaming import Path

_PARAMETERS: Final = "params"
_NAMES: Final = "param_names"
_STATISTICS: Final = ("/running_mean", "/running_var", "/num_batches_tracked")
"""The buffers that modules of PyTorch have in their state dicts."""
_ABSENT: Final = object()


class _Parameter(NamedTuple):
    """A parameter of an optimizer in a file.

    Attributes:
        name: Its name among the values of the file.
        called: What the state of the optimizer calls it: a name, or a position.
        group: The number of its group.
    """

    name: str
    called: Any
    group: int


def optimizers_of(reader: ForeignReader) -> list[Optimizer]:
    """The states of optimizers in a file."""
    optimizers: list[Optimizer] = []
    pending: list[tuple[Path, Any]] = [((), reader.file.tree)]
    while pending:
        path, value = pending.pop()
        if not isinstance(value, (Mapping, list, tuple)):
            continue
        item = Item("/".join(path), value)
        if is_optimizer_state(item):
            optimizers.append(Optimizer(reader, path, item, len(optimizers)))
        else:
            pending += [((*path, name), each) for name, each in members(value)]
    return optimizers


class Optimizer:
    """The state of one optimizer in a file.

    Args:
        reader: The open file.
        path: Where the state is.
        item: The state.
        number: The number of this optimizer among those of the file.
    """

    def __init__(self, reader: ForeignReader, path: Path, item: Item, number: int) -> None:
        self._reader = reader
        self.path = path
        self._form: _Form = _Flat(item.value) if GROUPS not in item.value else _Grouped(item.value)
        self._number = number
        self._above = ""
        self._parameters: list[_Parameter] | None = None

    def attach(self, values: dict[str, Laid], repeated: Collection[str]) -> None:
        """Finds the parameters among the values of the file, and gives them their state.

        Args:
            values: The values, by name.
            repeated: Further names of values that have an earlier one, as a tied weight has.
        """
        named = self._form.named()
        self._parameters = self._in_order(values, repeated) if named is None else self._named(values, named)
        for parameter in self._parameters or ():
            laid = values[parameter.name]
            state = {
                StateOf(self._number, name): AsSaved(self._reader, key)
                for name, value in self._form.state(parameter.called).items()
                if _is_array(value) and (key := self._key(self._form.path(parameter.called, name))) in self._reader
            }
            values[parameter.name] = replace(laid, state={**laid.state, **state})

    def laid_out(self, values: Mapping[str, Laid], final: Mapping[str, Laid], new: Mapping[str, Laid]) -> Any:
        """The contents of the state for the new parameters; None if none of its parameters has changed.

        Args:
            values: The values of the file.
            final: The values after all steps.
            new: Those of them that the file does not have.
        """
        if not new:
            return None
        if self._parameters is None:
            return self._refused("the file does not say which parameters it is the state of")
        known = {parameter.name: parameter for parameter in self._parameters}
        name_of_key = {key: name for name in known for key in values[name].recipe.keys()}  # noqa: SIM118 - a recipe is not a mapping
        parameters: list[tuple[str, list[_Parameter]]] = []
        for name, value in final.items():
            names = [name_of_key.get(key) for key in value.recipe.keys()]  # noqa: SIM118 - a recipe is not a mapping
            joined = [known[each] for each in names if each is not None]
            if len({each.group for each in joined}) > 1:
                return self._refused("the parameters that become one are in several groups")
            if 0 < len(joined) < len(names):
                return self._refused("a parameter becomes one with a value that is none")
            if joined:
                parameters.append((name, joined))
        if not any(name in new for name, _ in parameters):
            return None
        if any(not name.startswith(self._above) for name, _ in parameters) or not self._form.agrees(parameters):
            return self._refused("the parameters that become one have different hyperparameters, or are elsewhere")
        called = {name: name[len(self._above) :].replace("/", ".") for name, _ in parameters}
        state = {
            name: self._new_state(final[name], joined) if name in new else self._form.present(joined[0].called)
            for name, joined in parameters
        }
        return self._form.contents(parameters, called, state)

    def _new_state(self, value: Laid, joined: Sequence[_Parameter]) -> Any:
        """The state of a new parameter, which is made of some others."""
        each = [self._form.present(parameter.called) for parameter in joined]
        if all(state is _ABSENT for state in each):
            return _ABSENT
        names = dict.fromkeys(name for state in each if isinstance(state, Mapping) for name in state)
        made: dict[Any, Any] = {}
        for name in names:
            recipe = value.state.get(StateOf(self._number, name))
            plain = [state.get(name, _ABSENT) if isinstance(state, Mapping) else _ABSENT for state in each]
            if recipe is not None:
                made[name] = Stored(recipe.spec, recipe)
            elif all(_is_plain(state) and state == plain[0] and type(state) is type(plain[0]) for state in plain):
                made[name] = plain[0]
            else:
                key = self._key(self._form.path(joined[0].called, name))
                made[name] = self._refusal(key, "the parameters that become one have different state of this name")
        return made

    def _named(self, values: Mapping[str, Laid], names: Sequence[str]) -> list[_Parameter] | None:
        """The parameters of these names: those of a part of the file that has all of them."""
        called = self._form.parameters()
        plain = [name.replace(".", "/") for name in names]
        if not plain:
            return None
        for name in values:
            if f"/{name}".endswith(f"/{plain[0]}"):
                above = name.removesuffix(plain[0])
                if all(f"{above}{each}" in values for each in plain):
                    self._above = above
                    pairs = zip(plain, called, strict=True)
                    return [_Parameter(f"{above}{each}", name, group) for each, (name, group) in pairs]
        return None

    def _in_order(self, values: Mapping[str, Laid], repeated: Collection[str]) -> list[_Parameter] | None:
        """The parameters of state by positions: those of a dict that has as many tensors, of the shapes of the state.

        Statistics of a normalisation are no parameters.
        """
        called = self._form.parameters()
        if len({group for _, group in called}) > 1:
            return None
        parts: dict[Path, list[str]] = {}
        for name, value in values.items():
            if name in repeated or name.endswith(_STATISTICS):
                continue
            key = tuple(value.recipe.keys()[0].split("/")[:-1])
            parts.setdefault(key, []).append(name)
        fitting = [names for names in parts.values() if len(names) == len(called) and self._fit(names, values)]
        if len(fitting) != 1:
            return None
        name = fitting[0][0]
        self._above = name[: len(name) - len(values[name].recipe.keys()[0].rpartition("/")[2])]
        pairs = zip(fitting[0], sorted(called, key=lambda pair: pair[0]), strict=True)
        return [_Parameter(name, position, group) for name, (position, group) in pairs]

    def _fit(self, names: Sequence[str], values: Mapping[str, Laid]) -> bool:
        """Whether tensors have the shapes of the state at their positions."""
        positions = sorted(position for position, _ in self._form.parameters())
        for name, position in zip(names, positions, strict=True):
            shapes = [_shape(each) for each in self._form.state(position).values() if _is_array(each)]
            shapes = [shape for shape in shapes if shape]
            if isinstance(values[name].recipe, NoArray) or (shapes and values[name].recipe.shape not in shapes):
                return False
        return True

    def _refused(self, reason: str) -> Any:
        """The contents with state that is an error if it is asked for."""
        return self._form.replaced(lambda path: self._refusal(self._key(path), reason))

    def _refusal(self, key: str, reason: str) -> Stored:
        """A value that is an error if it is asked for."""
        error = UnsupportedError(
            f"convert cannot lay out this state of an optimizer, because {reason}; nothing was changed",
            key=key,
            remedy="leave the optimizer out with ignore, or with only",
        )
        recipe = Refused([AsSaved(self._reader, key) if key in self._reader else NoArray(key)], error)
        return Stored(recipe.spec, recipe)

    def _key(self, path: Sequence[Any]) -> str:
        return "/".join([*self.path, *map(str, path)])


class _Grouped:
    """State in the two forms with groups.

    Args:
        value: The state.
    """

    def __init__(self, value: Mapping[Any, Any]) -> None:
        self._value = value
        state = value.get(STATE)
        self._state: Mapping[Any, Any] = state if isinstance(state, Mapping) else {}

    def parameters(self) -> list[tuple[Any, int]]:
        """What the parameters are called, each with the number of its group."""
        listed = []
        for number, group in enumerate(self._value[GROUPS]):
            members = group.get(_PARAMETERS) if isinstance(group, Mapping) else ()
            listed += [(each, number) for each in (members if isinstance(members, (list, tuple)) else ())]
        return listed

    def named(self) -> list[str] | None:
        """The names of the parameters, in the order of `parameters`. None if there are only positions."""
        names: list[Any] = [called for called, _ in self.parameters()]
        if not all(isinstance(each, str) for each in names):
            listed = [group.get(_NAMES) for group in self._value[GROUPS] if isinstance(group, Mapping)]
            every = [each for of_one in listed if isinstance(of_one, (list, tuple)) for each in of_one]
            names = every if len(every) == len(names) else []
        return names if names and all(isinstance(each, str) for each in names) else None

    def path(self, called: Any, name: Any) -> tuple[Any, ...]:
        """Where state of a parameter is."""
        return STATE, called, name

    def present(self, called: Any) -> Any:
        """The state of a parameter as the file has it."""
        return self._state.get(called, _ABSENT)

    def state(self, called: Any) -> Mapping[Any, Any]:
        """The state of a parameter, by name."""
        state = self._state.get(called)
        return state if isinstance(state, Mapping) else {}

    def agrees(self, parameters: Sequence[tuple[str, Sequence[_Parameter]]]) -> bool:
        """Whether parameters that become one have the same hyperparameters."""
        return True  # they are in one group

    def contents(
        self,
        parameters: Sequence[tuple[str, Sequence[_Parameter]]],
        called: Mapping[str, str],
        state: Mapping[str, Any],
    ) -> dict[Any, Any]:
        """The contents for other parameters, by names: the program may have them in another order than the file.

        Args:
            parameters: The new parameters in their order, each with those that it is made of.
            called: Their names.
            state: Their state.
        """
        groups: list[list[str]] = [[] for _ in self._value[GROUPS]]
        for name, joined in parameters:
            groups[joined[0].group].append(name)
        listed = [
            {
                **{name: each for name, each in group.items() if name != _NAMES},  # of parameters that have gone
                _PARAMETERS: [called[name] for name in names],
            }
            for group, names in zip(self._value[GROUPS], groups, strict=True)
        ]
        known = {member.called for _, joined in parameters for member in joined}
        rest = {name: each for name, each in self._state.items() if name not in known}
        present = {called[name]: state[name] for name, _ in parameters if state[name] is not _ABSENT}
        return {**self._value, STATE: {**rest, **present}, GROUPS: listed}

    def replaced(self, make: Any) -> dict[Any, Any]:
        """The contents with other values instead of the tensors in the state of parameters."""
        state = {
            called: {name: make(self.path(called, name)) if _is_array(each) else each for name, each in of_one.items()}
            if isinstance(of_one, Mapping)
            else of_one
            for called, of_one in self._state.items()
        }
        return {**self._value, STATE: state}


class _Flat:
    """State in the form without levels.

    Args:
        value: The state.
    """

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._value = value

    def parameters(self) -> list[tuple[Any, int]]:
        """As for `_Grouped`; all parameters count as one group."""
        prefix = f"{GROUPS}."
        names = (name.removeprefix(prefix).rpartition(".")[0] for name in self._value if name.startswith(prefix))
        return [(name, 0) for name in dict.fromkeys(names)]

    def named(self) -> list[str]:
        """As for `_Grouped`."""
        return [called for called, _ in self.parameters()]

    def path(self, called: Any, name: Any) -> tuple[Any, ...]:
        """As for `_Grouped`."""
        return (f"{STATE}.{called}.{name}",)

    def present(self, called: Any) -> Any:
        """As for `_Grouped`."""
        return self._below(STATE, called) or _ABSENT

    def state(self, called: Any) -> Mapping[Any, Any]:
        """As for `_Grouped`."""
        return self._below(STATE, called)

    def agrees(self, parameters: Sequence[tuple[str, Sequence[_Parameter]]]) -> bool:
        """As for `_Grouped`."""
        settings = ([self._below(GROUPS, each.called) for each in joined] for _, joined in parameters)
        return all(_same_settings(each, of_one[0]) for of_one in settings for each in of_one)

    def contents(
        self,
        parameters: Sequence[tuple[str, Sequence[_Parameter]]],
        called: Mapping[str, str],
        state: Mapping[str, Any],
    ) -> dict[Any, Any]:
        """As for `_Grouped`."""
        contents: dict[str, Any] = {}
        for name, joined in parameters:
            of_one = state[name] if state[name] is not _ABSENT else {}
            contents |= {f"{STATE}.{called[name]}.{each}": value for each, value in of_one.items()}
            settings = self._below(GROUPS, joined[0].called)
            contents |= {f"{GROUPS}.{called[name]}.{each}": value for each, value in settings.items()}
        return contents

    def replaced(self, make: Any) -> dict[Any, Any]:
        """As for `_Grouped`."""
        return {
            name: make((name,)) if name.startswith(f"{STATE}.") and _is_array(each) else each
            for name, each in self._value.items()
        }

    def _below(self, part: str, called: str) -> dict[str, Any]:
        prefix = f"{part}.{called}."
        return {
            name.removeprefix(prefix): value
            for name, value in self._value.items()
            if name.startswith(prefix) and "." not in name.removeprefix(prefix)
        }


_Form = _Grouped | _Flat


def _same_settings(settings: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return settings.keys() == others.keys() and all(
        _is_plain(value) and type(value) is type(others[name]) and value == others[name]
        for name, value in settings.items()
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, (Stored, np.ndarray))


def _shape(value: Stored | np.ndarray[Any, Any]) -> tuple[int, ...]:
    return value.spec.shape if isinstance(value, Stored) else value.shape


def _is_plain(value: Any) -> bool:
    """Whether a value may be compared with another: a number, a text, None, or a tuple or list of these."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str))
