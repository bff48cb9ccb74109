"""Carries out the steps of ``convert`` on the names of a file: which values go, which come, and of what they are made.

The state that an optimizer has of a parameter goes with it. State of the shape of the parameter is converted as the parameter is. A single
number, such as the steps made, must be the same for all parameters that become one. All other state cannot be converted: it is an error if it
is asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from milepost.engine.layouts.making import made
from milepost.engine.layouts.patterns import Pattern
from milepost.engine.layouts.recipes import NoArray, Recipe, Refused, Same
from milepost.engine.layouts.steps import Step, names_of
from milepost.engine.unused_names import nearest
from milepost.errors import KeyNotFoundError, MilepostError, MismatchError, UnsupportedError

_MOST_LISTED: Final = 5


class StateOf(NamedTuple):
    """Which state of an optimizer.

    Attributes:
        owner: Which optimizer, as a file tells them apart.
        name: The name of the state.
        local: Which of its values.
    """

    owner: Hashable
    name: str
    local: str = ""


@dataclass(frozen=True)
class Laid:
    """A value under a name.

    Attributes:
        recipe: How it is made; a `milepost.engine.layouts.recipes.AsSaved` if it is as it was saved.
        state: How the state is made that optimizers have of it.
        origin: Its name in the file, if no other value was made of it, and it was made of no other.
    """

    recipe: Recipe
    state: Mapping[StateOf, Recipe] = field(default_factory=dict)
    origin: str | None = None


def applied(values: Mapping[str, Laid], steps: Sequence[Step], file: str) -> dict[str, Laid]:
    """The values under their new names. A new value has the position of the first one that it is made of.

    Args:
        values: The values of the file, by name.
        steps: The steps.
        file: The path of the file, for errors.

    Raises:
        KeyNotFoundError: A step fits no name, or some of the names that it needs are missing.
        UnsupportedError: Two values would have the same name, or a value is no array of numbers.
        MismatchError: Shapes or element types do not fit a step.
    """
    current = dict(values)
    for step in steps:
        try:
            current = _after(current, step)
        except MilepostError as error:
            raise error.with_context(file=file) from None
    return current


def copies_of_changed(values: Mapping[str, Laid], final: Mapping[str, Laid]) -> list[str]:
    """The values that stay as they are, and have the names of converted ones below other names, as moments of Optax have.

    Args:
        values: The values of the file.
        final: What `applied` has returned.
    """
    changed = {name for name, value in values.items() if final.get(name) is not value}
    below = {name.partition("/")[2]: name.count("/") for name in changed}
    copies = []
    for name in values.keys() - changed if below else ():
        levels = name.split("/")
        ends = ("/".join(levels[start:]) for start in range(2, len(levels)))
        if any(end in below and below[end] < len(levels) - 1 for end in ends):
            copies.append(name)
    return sorted(copies)


def _after(values: dict[str, Laid], step: Step) -> dict[str, Laid]:
    """The values after a step."""
    sources, targets = names_of(step)
    groups: dict[tuple[str, ...], dict[tuple[int, int], str]] = {}
    for name in values:
        for position, pattern in enumerate(sources):
            if (fit := pattern.fit(name)) is not None:
                groups.setdefault(fit.group, {})[position, fit.number] = name
    if not groups:
        raise _fits_nothing(sources, values)
    new: dict[str, list[tuple[str, Laid]]] = {}
    taken: dict[str, str] = {}
    for group, names in groups.items():
        members = _members(sources, group, names)
        for name in members:
            if taken.setdefault(name, members[0]) != members[0]:
                raise _same(name, "taken twice by one step of convert")
        new[members[0]] = _made(step, targets, group, members, values)
    return _placed(values, new, taken)


def _members(sources: Sequence[Pattern], group: tuple[str, ...], names: Mapping[tuple[int, int], str]) -> list[str]:
    """The names of the values that become one, in their order."""
    if sources[0].is_numbered:
        wanted = [(0, number) for number in range(max(number for _, number in names) + 1)]
    else:
        wanted = [(position, 0) for position in range(len(sources))]
    missing = [sources[position].name(group, number) for position, number in wanted if (position, number) not in names]
    if missing:
        raise KeyNotFoundError(
            "a step of convert needs values that the file does not have; nothing was changed",
            key=missing[0],
            expected=f"a value of this name{_more(missing)}, beside {_listed(names.values())}",
            remedy="correct the names of the step, for example to those of the weights alone",
        )
    return [names[each] for each in wanted]


def _made(
    step: Step, targets: Sequence[Pattern], group: tuple[str, ...], names: Sequence[str], values: Mapping[str, Laid]
) -> list[tuple[str, Laid]]:
    """What a step makes of some values, by name."""
    members = [values[name] for name in names]
    for name, member in zip(names, members, strict=True):
        if isinstance(member.recipe, NoArray):
            raise UnsupportedError(
                "a step of convert takes a value that is no array of numbers; nothing was changed",
                key=name,
                remedy="name the arrays in the step, such as '*/weight'",
            )
    try:
        recipes = made(step, [each.recipe for each in members])
    except MilepostError as error:
        raise error.with_context(key=_listed(names)) from None
    state: list[dict[StateOf, Recipe]] = [{} for _ in recipes]
    for kind in dict.fromkeys(kind for each in members for kind in each.state):
        for each, recipe in zip(state, _state(step, kind, names, members, len(recipes)), strict=True):
            each[kind] = recipe
    is_one = len(members) == len(recipes) == 1
    new_names = [
        targets[0].name(group, number) if targets[0].is_numbered else targets[number].name(group)
        for number in range(len(recipes))
    ]
    return [
        (name, Laid(recipe, each, members[0].origin if is_one else None))
        for name, recipe, each in zip(new_names, recipes, state, strict=True)
    ]


def _state(step: Step, kind: StateOf, names: Sequence[str], members: Sequence[Laid], count: int) -> list[Recipe]:
    """How one kind of state of optimizers is made for what a step makes."""
    present = [each.state[kind] for each in members if kind in each.state]
    refused = next((each for each in present if isinstance(each, Refused)), None)
    if refused is not None:
        return [Refused(present, refused.error)] * count
    if len(present) < len(members):
        lacking = [name for name, each in zip(names, members, strict=True) if kind not in each.state]
        return [Refused(present, _lacks_state(present[0], lacking))] * count
    if all(state.shape == each.recipe.shape for state, each in zip(present, members, strict=True)):
        try:
            return made(step, present)
        except MismatchError as error:
            return [Refused(present, _does_not_fit(present[0], error))] * count
    if all(not state.shape for state in present) and len({state.spec.dtype for state in present}) == 1:
        return [present[0] if len(present) == 1 else Same(present, _listed(names))] * count
    return [Refused(present, _other_shape(present, members))] * count


def _placed(
    values: Mapping[str, Laid], new: Mapping[str, list[tuple[str, Laid]]], taken: Mapping[str, str]
) -> dict[str, Laid]:
    """The values with those that a step has made in the positions of what it took.

    Args:
        values: The values before.
        new: What was made, by the first name of what it is made of.
        taken: The names of what was taken.
    """
    placed: dict[str, Laid] = {}
    for name, value in values.items():
        for new_name, laid in new.get(name, ()) if name in taken else [(name, value)]:
            if new_name in placed:
                raise _same(
                    new_name, f"the same name for {_listed([*placed[new_name].recipe.keys(), *laid.recipe.keys()])}"
                )
            placed[new_name] = laid
    return placed


def _fits_nothing(sources: Sequence[Pattern], names: Iterable[str]) -> KeyNotFoundError:
    near = nearest(sources[0].text, names)
    return KeyNotFoundError(
        "a step of convert fits no saved name; nothing was changed",
        key=str(sources[0]),
        expected="the name of a saved value, or the beginning of one",
        remedy=f"correct the name{f': {near}' if near else ', or leave the step out'}",
    )


def _same(name: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        "convert would give two values the same name, or take one twice; nothing was changed",
        key=name,
        found=found,
        remedy="give the result of one of the steps another name",
    )


def _lacks_state(state: Recipe, lacking: Sequence[str]) -> UnsupportedError:
    return UnsupportedError(
        "an optimizer has this state of only some of the values that convert makes one of; nothing was changed",
        key=state.keys()[0],
        expected=f"such state of {_listed(lacking)}, too",
        remedy="leave the optimizer out with ignore, or with only",
    )


def _does_not_fit(state: Recipe, error: MismatchError) -> UnsupportedError:
    return UnsupportedError(
        "a step of convert does not fit this state of an optimizer, although it fits the parameter; nothing was changed",
        key=state.keys()[0],
        expected=error.expected,
        found=error.found,
        remedy="leave the optimizer out with ignore, or with only",
    )


def _other_shape(present: Sequence[Recipe], members: Sequence[Laid]) -> UnsupportedError:
    return UnsupportedError(
        "this state of an optimizer has another shape than its parameter, so that convert cannot tell how it is laid out; nothing was changed",
        key=present[0].keys()[0],
        expected=f"{members[0].recipe.shape}, the shape of the parameter, or a single number",
        found=", ".join(str(each.spec) for each in present[:_MOST_LISTED]),
        remedy="leave the optimizer out with ignore, or with only",
    )


def _more(names: Sequence[str]) -> str:
    return f", and of {_listed(names[1:])}" if len(names) > 1 else ""


def _listed(names: Iterable[str]) -> str:
    everything = list(names)
    more = ", ..." if len(everything) > _MOST_LISTED else ""
    return f"{', '.join(everything[:_MOST_LISTED])}{more}"
