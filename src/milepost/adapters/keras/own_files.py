"""The names that Keras' own files give to the variables of live objects.

::

    .weights.h5   :=  layers/dense/vars/0 ...      attributes and positions on the way to an object, "vars", and its own name of a variable
    .h5           :=  layer names and weight names in the order of the model's layers, and of the weights of each

An object names its variables in ``save_own_variables``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from milepost.adapters.keras.private import BaseOptimizer, KerasSaveable, Variable, to_snake_case, walk_saveable


def is_saveable(obj: Any) -> bool:
    """Whether Keras saves an object in a file of its own, as models, layers and optimizers."""
    return isinstance(obj, KerasSaveable)


def variables_by_path(root: Any) -> dict[str, Any]:
    """The variables below an object, by their paths in a ``.weights.h5`` file of it."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", root)]
    while pending:
        path, obj = pending.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, KerasSaveable):
            found.update((_joined(path, f"vars/{name}"), each) for name, each in _own_variables(obj).items())
            below = [(_joined(path, name), each) for name, each in walk_saveable(obj)]
        else:
            below = [(_joined(path, name), each) for name, each in _members(obj)]
        pending += [
            (name, each) for name, each in reversed(below) if isinstance(each, (KerasSaveable, list, dict, tuple))
        ]
    return found


def layers_in_order(model: Any) -> list[tuple[str, Sequence[Any]]]:
    """The layers of a model that have weights, each with its name and its weights in the order of ``.h5`` files."""
    found = [
        (layer.name, [*layer.trainable_weights, *layer.non_trainable_weights]) for layer in getattr(model, "layers", ())
    ]
    return [(name, weights) for name, weights in found if weights]


def optimizer_variables(model: Any) -> Sequence[Any]:
    """The variables of the optimizer of a compiled model, in the order of ``.h5`` files."""
    return list(getattr(getattr(model, "optimizer", None), "variables", ()))


def _own_variables(obj: Any) -> Mapping[str, Any]:
    if isinstance(obj, BaseOptimizer):  # `save_own_variables` of Keras gives copies of them
        return {str(number): each for number, each in enumerate(obj.variables)}
    given: dict[str, Any] = {}
    if hasattr(obj, "save_own_variables"):
        obj.save_own_variables(given)
    return {name: each for name, each in given.items() if isinstance(each, Variable)}


def _members(container: Any) -> Iterable[tuple[str, Any]]:
    """The members of a list or dict under the names that Keras gives them: their classes, numbered."""
    used: dict[str, int] = {}
    for member in list(container.values()) if isinstance(container, dict) else container:
        if isinstance(member, KerasSaveable):
            base = to_snake_case(type(member).__name__)
        elif isinstance(member, (list, dict, tuple)):
            base = "container"
        else:
            continue
        number = used[base] = used.get(base, -1) + 1
        yield f"{base}_{number}" if number else base, member


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
