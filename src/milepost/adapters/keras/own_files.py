"""The names that Keras' own files give to the variables of live objects.

::

    .weights.h5   :=  layers/dense/vars/0 ...      attributes and positions on the way to an object, "vars", and its own name of a variable
    .h5           :=  layer names and weight names in the order of the model's layers, and of the weights of each

An object names its variables in ``save_own_variables``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import keras
import numpy as np

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
from milepost.graph.adapter import Array

_VARS: Final = "vars"
"""The name below an object under which Keras has the variables that the object names itself."""


def is_saveable(obj: Any) -> bool:
    """Whether Keras saves an object in a file of its own, as models, layers and optimizers."""
    return isinstance(obj, KerasSaveable)


def variables_by_path(root: Any) -> dict[str, Any]:
    """The variables below an object, by their paths in a ``.weights.h5`` file of it."""
    return {
        _joined(path, f"{_VARS}/{name}"): each
        for path, obj in saveables(root)
        for name, each in _own_variables(obj).items()
    }


def computing_by_path(root: Any) -> dict[str, tuple[Any, list[str]]]:
    """The objects below an object that save arrays which are no variables of theirs, such as a kernel with which LoRA is merged.

    Returns:
        By paths in a ``.weights.h5`` file, each object with the names of these arrays.
    """
    objects_by_path: dict[str, tuple[Any, list[str]]] = {}
    for path, obj in saveables(root):
        if not isinstance(obj, BaseOptimizer) and not saves_itself(type(obj)):
            names = [name for name, each in _given(obj).items() if not isinstance(each, Variable)]
            if names:
                objects_by_path[path] = obj, names
    return objects_by_path


def computed(obj: Any, values: Iterable[tuple[Any, Array]]) -> dict[str, Array]:
    """The arrays that an object would save beside its variables, if these had other values. It does not change.

    Args:
        obj: The object.
        values: Variables of it, each with its value.
    """
    with keras.StatelessScope(values):
        return {
            name: np.asarray(keras.ops.convert_to_numpy(value))
            for name, value in _given(obj).items()
            if not isinstance(value, Variable)
        }


def loaded(obj: Any) -> tuple[dict[str, Any], list[tuple[Any, Array]]]:
    """What an object of `computing_by_path` does when Keras loads it. It does not change.

    Returns:
        The variable that takes the value of each name, and the other variables that get values, each with its value.
    """
    store, takers, others = _AskedStore(_given(obj)), dict[str, Any](), list[tuple[Any, Array]]()

    class Scope(keras.StatelessScope):  # type: ignore[misc]  # Keras has no types
        def add_update(self, update: tuple[Any, Any]) -> None:
            variable, value = update
            if store.asked is None:
                others.append((variable, np.asarray(keras.ops.convert_to_numpy(value))))
            else:
                takers[store.asked], store.asked = variable, None

    if getattr(obj, "variables", ()):  # the weights of a vocabulary are none of Keras
        with Scope():
            obj.load_own_variables(store)
    return takers, others


class _AskedStore(dict[str, Any]):
    """What an object has saved. It knows the name that was asked for last."""

    asked: str | None = None

    def __getitem__(self, name: str) -> Any:
        self.asked = name
        return super().__getitem__(name)


def saveables(root: Any) -> Iterator[tuple[str, Any]]:
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
    return {path: obj for path, obj in saveables(root) if saves_itself(type(obj))}


def variables_called(root: Any, paths: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The variables below an object that have some paths. An object may be reached by several, such as by an attribute and a property.

    Args:
        root: The object.
        paths: The paths, as a ``.weights.h5`` file has them.

    Returns:
        The variables by path; and for each path without one that leads to a layer that is not built, this layer.
    """
    variables: dict[str, Any] = {}
    unbuilt: dict[str, Any] = {}
    pending: list[tuple[Any, list[tuple[str, str]]]] = [(root, [(path, path) for path in paths])]
    while pending:
        obj, wanted = pending.pop()
        variables_by_key = _taking_variables(obj) if isinstance(obj, KerasSaveable) else {}
        further: dict[str, list[tuple[str, str]]] = {}
        for path, rest in wanted:
            name, _, after = rest.partition("/")
            if name == _VARS and after in variables_by_key:
                variables[path] = variables_by_key[after]
            else:
                further.setdefault(name, []).append((path, after))
        for name, child in _below(obj) if further.keys() - {_VARS} else ():
            if name in further:  # Keras uses the first one of a name
                pending.append((child, further.pop(name)))
        if isinstance(obj, Layer) and not obj.built:
            unbuilt.update((path, obj) for pairs in further.values() for path, _ in pairs)
    return variables, unbuilt


def lookups_called(root: Any, paths: Iterable[str]) -> dict[str, Any]:
    """The lookup layers below an object, by the paths that Keras gives to the directories of their assets.

    Args:
        root: The object.
        paths: The paths that are looked for.
    """
    lookups: dict[str, Any] = {}
    for path in paths:
        obj: Any = root
        for step in path.split("/"):
            obj = next((each for name, each in _below(obj) if name == step), None)
            if obj is None:
                break
        lookup = getattr(obj, "_lookup_layer", obj)
        if isinstance(lookup, IndexLookup):
            lookups[path] = lookup
    return lookups


def layers_in_order(model: Any) -> list[tuple[str, Sequence[Any]]]:
    """The layers of a model that have weights, each with its name and its weights in the order of ``.h5`` files."""
    layers = [
        (layer.name, [*layer.trainable_weights, *layer.non_trainable_weights]) for layer in getattr(model, "layers", ())
    ]
    return [(name, weights) for name, weights in layers if weights]


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
    return {name: each for name, each in _given(obj).items() if isinstance(each, Variable)}


def _taking_variables(obj: Any) -> Mapping[str, Any]:
    """The variables that take what an object has saved, by the names that these values have."""
    variables = _own_variables(obj)
    is_computing = (
        not isinstance(obj, BaseOptimizer) and not saves_itself(type(obj)) and len(_given(obj)) > len(variables)
    )
    return {**loaded(obj)[0], **variables} if is_computing else variables


def _given(obj: Any) -> Mapping[str, Any]:
    """What an object saves by ``save_own_variables``."""
    store: dict[str, Any] = {}
    if hasattr(obj, "save_own_variables"):
        obj.save_own_variables(store)
    return store


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
