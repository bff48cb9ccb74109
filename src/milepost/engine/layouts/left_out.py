"""What steps make of values that a save has left out on purpose: the record of them gets the names and shapes that live values have then."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from milepost.engine.layouts.applying import Laid, StateOf
from milepost.engine.layouts.recipes import Absent, Recipe
from milepost.engine.left_out import LeftOut
from milepost.errors import UnsupportedError
from milepost.graph.keys import ATTRIBUTES, SLOT, VARIABLE_VALUE, slot_path, tensor_key
from milepost.tensor import DType, TensorSpec

_SPEC: Final = re.compile(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]")


def absent_values(left_out: LeftOut) -> dict[str, Laid]:
    """The values that a save has left out, by name, for `milepost.engine.layouts.applying.applied`."""
    values: dict[str, Laid] = {}
    states: dict[str, dict[StateOf, Recipe]] = {}
    for key, text in left_out.values.items():
        spec, (path, _, local) = _parsed(text), key.partition(ATTRIBUTES)
        variable, is_slot, rest = path.partition(SLOT)
        if spec is None:
            continue
        if is_slot:
            owner, _, name = rest.rpartition("/")
            states.setdefault(variable, {})[StateOf(owner, name, local)] = Absent(spec, key)
        elif local == VARIABLE_VALUE:
            values[path] = Laid(Absent(spec, key), {}, path)
    return {path: replace(value, state=states.get(path, {})) for path, value in values.items()}


def without_absent(final: Mapping[str, Laid], left_out: LeftOut, file: str) -> tuple[dict[str, Laid], LeftOut]:
    """The values that steps make of saved ones, and the record of those that they make of what the save has left out.

    Args:
        final: What `milepost.engine.layouts.applying.applied` has returned for the saved values and `absent_values`.
        left_out: The record.
        file: The path of the file, for errors.

    Raises:
        UnsupportedError: A value would be made of saved values and of values that were left out.
    """
    made: dict[str, Laid] = {}
    values, digests = dict(left_out.values), dict(left_out.digests)
    changed: dict[str, str] = {}
    of_base = set()
    for name, value in final.items():
        sources = value.recipe.keys()
        lacking = [key for key in sources if key in left_out.values]
        if not lacking:
            made[name] = value
        elif len(lacking) < len(sources):
            raise _mixed(name, sources, lacking, left_out, file)
        elif not (isinstance(value.recipe, Absent) and value.origin == name):
            new = tensor_key(name, VARIABLE_VALUE)
            changed[new] = str(value.recipe.spec)
            of_base |= {new} if any(key in digests for key in lacking) else set()
            changed.update(_states(name, value))
            for key in (*lacking, *(key for each in value.state.values() for key in each.keys())):  # noqa: SIM118 - a recipe is not a mapping
                values.pop(key, None)
    digests = {key: digest for key, digest in digests.items() if key in values} | dict.fromkeys(sorted(of_base), "")
    return made, replace(left_out, values=values | changed, digests=digests)


def _states(name: str, value: Laid) -> Iterator[tuple[str, str]]:
    """The key and the element type and shape of the state that optimizers would have of a value."""
    for kind, recipe in value.state.items():
        yield f"{slot_path(name, str(kind.owner), kind.name)}{ATTRIBUTES}{kind.local}", str(recipe.spec)


def _parsed(text: str) -> TensorSpec | None:
    """The element type and shape that a record has as text; None for others, such as unknown lengths."""
    match = _SPEC.fullmatch(text)
    try:
        return (
            None
            if match is None
            else TensorSpec(DType.of(match[1]), tuple(map(int, filter(None, match[2].split(",")))))
        )
    except UnsupportedError:
        return None


def _mixed(name: str, sources: list[str], lacking: list[str], left_out: LeftOut, file: str) -> UnsupportedError:
    return UnsupportedError(
        "a step of convert makes one value of saved values and of values that the save has left out; nothing was changed",
        key=name,
        file=file,
        expected=f"all of {', '.join(sources)}",
        found=f"{lacking[0]} {left_out.reason(lacking[0])}",
        remedy="name only saved values in the step, or only those that were left out",
    )
