"""The names that Keras' own files give to the variables of live objects.

::

    .weights.h5   :=  layers/dense/vars/0 ...      attributes and positions on the way to an object, "vars", and its own name of a variable
    .h5           :=  layer names and weight names in the order of the model's layers, and of the weights of each

An object names its variables in ``save_own_variables``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from milepost.adapters.keras.own_state import saves_itself
from milepost.adapters.keras.private import (
    BaseOptimizer,
    IndexLookup,
    KerasSaveable,
    Layer,
    Variable,
    to_snake_case,
    walk_saveable,
)

_VARS: Final = "vars"
"""The name below an object under which Keras has the variables that the object names itself."""


def is_saveable(obj: Any) -> bool:
    """Whether Keras saves an object in a file of its own, as models, layers and optimizers."""
    return isinstance(obj, KerasSaveable)


def variables_by_path(root: Any) -> dict[str, Any]:
    """The variables below an object, by their paths in a ``.weights.h5`` file of it."""
    return {
        _joined(path, f"{_VARS}/{name}"): each
        for path, obj in _saveables(root)
        for name, each in _own_variables(obj).items()
    }


def _saveables(root: Any) -> Iterator[tuple[str, Any]]:
    """An object and all below it that Keras saves, each once, with their paths."""
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", root)]
    while pending:
        path, obj = pending.pop()
        if id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, KerasSaveable):
            yield path, obj
        pending += [(_joined(path, name), each) for name, each in reversed(list(_below(obj)))]


def own_objects_by_path(root: Any) -> dict[str, Any]:
    """The objects below an object whose classes have code of their own for what Keras saves, by their paths in a ``.weights.h5`` file."""
    return {path: obj for path, obj in _saveables(root) if saves_itself(type(obj))}


def variables_called(root: Any, paths: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The variables below an object that have some paths. An object may be reached by several, such as by an attribute and a property.

    Args:
        root: The object.
        paths: The paths, as a ``.weights.h5`` file has them.

    Returns:
        The variables by path; and for each path without one that leads to a layer that is not built, this layer.
    """
    found: dict[str, Any] = {}
    unbuilt: dict[str, Any] = {}
    pending: list[tuple[Any, list[tuple[str, str]]]] = [(root, [(path, path) for path in paths])]
    while pending:
        obj, wanted = pending.pop()
        own = _own_variables(obj) if isinstance(obj, KerasSaveable) else {}
        further: dict[str, list[tuple[str, str]]] = {}
        for path, rest in wanted:
            name, _, after = rest.partition("/")
            if name == _VARS and after in own:
                found[path] = own[after]
            else:
                further.setdefault(name, []).append((path, after))
        for name, each in _below(obj) if further.keys() - {_VARS} else ():
            if name in further:  # Keras uses the first one of a name
                pending.append((each, further.pop(name)))
        if isinstance(obj, Layer) and not obj.built:
            unbuilt.update((path, obj) for each in further.values() for path, _ in each)
    return found, unbuilt


def lookups_called(root: Any, paths: Iterable[str]) -> dict[str, Any]:
    """The lookup layers below an object, by the paths that Keras gives to the directories of their assets.

    Args:
        root: The object.
        paths: The paths that are looked for.
    """
    found: dict[str, Any] = {}
    for path in paths:
        obj: Any = root
        for step in path.split("/"):
            obj = next((each for name, each in _below(obj) if name == step), None)
            if obj is None:
                break
        lookup = getattr(obj, "_lookup_layer", obj)
        if isinstance(lookup, IndexLookup):
            found[path] = lookup
    return found


def layers_in_order(model: Any) -> list[tuple[str, Sequence[Any]]]:
    """The layers of a model that have weights, each with its name and its weights in the order of ``.h5`` files."""
    found = [
        (layer.name, [*layer.trainable_weights, *layer.non_trainable_weights]) for layer in getattr(model, "layers", ())
    ]
    return [(name, weights) for name, weights in found if weights]


def unbuilt_layer(model: Any) -> Any:
    """The model, or a layer of it, that is not built. None if all are."""
    layers = [model, *getattr(model, "layers", ())]
    return next((each for each in layers if isinstance(each, Layer) and not each.built), None)


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


def _below(obj: Any) -> Iterator[tuple[str, Any]]:
    """The objects and containers that Keras visits below another one, with their names."""
    for name, each in walk_saveable(obj) if isinstance(obj, KerasSaveable) else _members(obj):
        if isinstance(each, (KerasSaveable, list, dict, tuple)):
            yield name, each


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
