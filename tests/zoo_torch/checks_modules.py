"""What must hold of each module: saved, and restored into one in memory, one on the meta device, and one to come."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import milepost
from tests.zoo_torch.compare import DifferenceError, perturb, plain, require_same
from tests.zoo_torch.recipe import Recipe, torch

STAGES = ("made", "meta", "late")
NOTHING = "—"
"""In place of a result: there is no such stage."""
REFUSED = "refused: "
"""Before the reason why something is not possible, by PyTorch itself."""
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_FOUND = "net/inner/"


class RefusedError(Exception):
    """Something is not possible, by PyTorch itself."""


def make(recipe: Recipe, seed: int) -> Any:
    """A model around a module."""
    torch.manual_seed(seed)
    net = torch.nn.Module()
    net.inner = recipe.make()
    return net


def use(net: Any, recipe: Recipe, modes: tuple[bool, ...] = (True, False, True)) -> list[Any]:
    """What the module returns, in training and out of it; changes it if it changes itself."""
    if recipe.call is None:
        return []
    found = []
    for number, training in enumerate(modes):
        net.train(training and recipe.trains)
        torch.manual_seed(number)
        with torch.no_grad():
            found.append(plain(recipe.call(net.inner, *copy.deepcopy(recipe.inputs))))
    return found


def state(net: Any) -> dict[str, Any]:
    """What a module's ``state_dict`` holds, to be compared."""
    return {name: plain(value) for name, value in net.state_dict().items()}


def learn(net: Any, recipe: Recipe, seed: int) -> None:
    """Gives a module a state that depends on the seed."""
    use(net, recipe, (True,))
    perturb([value for value in net.state_dict().values() if isinstance(value, torch.Tensor)], seed)


def check(recipe: Recipe, directory: Path) -> dict[str, Any]:
    """Runs the check.

    Returns:
        The names of the values that were saved, and for each stage how many were restored, or what was wrong.
    """
    source = make(recipe, 1)
    learn(source, recipe, 1)
    path = milepost.Checkpoint(net=source).write(directory / "c")
    expected = [state(source), use(source, recipe), state(source)]
    names = sorted(key.removesuffix(_SUFFIX).removeprefix(_FOUND) for key in _keys(path))
    result: dict[str, Any] = {"names": names}
    for stage in STAGES:
        if stage != "made" and not names:
            result[stage] = NOTHING
            continue
        try:
            result[stage] = _restored(recipe, stage, path, expected)
        except RefusedError as refused:
            result[stage] = f"{REFUSED}{refused}"
        except Exception as error:
            result[stage] = f"{type(error).__name__}: {error}"
    return result


def _keys(path: str) -> list[str]:
    return [key for key, _ in milepost.list_variables(path) if key.startswith(_FOUND)]


def _restored(recipe: Recipe, stage: str, path: str, expected: list[Any]) -> int:
    if stage == "made":
        net = make(recipe, 2)
        learn(net, recipe, 2)
        same = [name for name, value in state(net).items() if value == expected[0].get(name) and "_extra" not in name]
        if same:
            raise DifferenceError(f"already the same before the restore: {same}")
    elif stage == "meta":
        net = _made_on_meta(recipe)
    else:
        net = make(recipe, 2) if recipe.lazy else torch.nn.Module()
    held = {} if recipe.lazy else {name: _place(value) for name, value in net.state_dict().items()}
    status = milepost.Checkpoint(net=net).read(path)
    if stage == "late" and not recipe.lazy:
        net.inner = make(recipe, 2).inner
    if stage == "made" or not recipe.lazy:
        status.assert_consumed()
        require_same("values", state(net), expected[0])
    if stage == "made" and {name: _place(net.state_dict()[name]) for name in held} != held:
        raise DifferenceError("a tensor was not restored in its own memory")
    require_same("outputs", use(net, recipe), expected[1])
    require_same("values in the end", state(net), expected[2])
    status.assert_consumed()
    report = status.report()
    if not report.complete:
        raise DifferenceError(f"incomplete: {report}")
    return sum(entry.key.startswith(_FOUND) for entry in report.matched)


def _made_on_meta(recipe: Recipe) -> Any:
    try:
        with torch.device("meta"):
            return make(recipe, 2)
    except (RuntimeError, NotImplementedError) as error:
        raise RefusedError(f"PyTorch cannot make it there: {str(error).splitlines()[0].partition('. ')[0]}") from error


def _place(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, torch.Tensor) else None
