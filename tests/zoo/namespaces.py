"""Every public class of a namespace of Keras, found by looking, and its recipes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.zoo import (
    layers_basic,
    layers_foreign,
    layers_preprocessing,
    layers_recurrent,
    metrics,
    optimizers,
)
from tests.zoo.recipe import Recipe, keras

NAMESPACES: dict[str, tuple[Any, type, dict[str, list[Recipe]]]] = {
    "layers": (
        keras.layers,
        keras.layers.Layer,
        {
            **layers_basic.RECIPES,
            **layers_recurrent.RECIPES,
            **layers_preprocessing.RECIPES,
            **layers_foreign.RECIPES,
        },
    ),
    "optimizers": (keras.optimizers, keras.optimizers.Optimizer, optimizers.OPTIMIZERS),
    "optimizers.schedules": (
        keras.optimizers.schedules,
        keras.optimizers.schedules.LearningRateSchedule,
        optimizers.SCHEDULES,
    ),
    "metrics": (keras.metrics, keras.metrics.Metric, metrics.METRICS),
}
"""For each namespace: the module, the class that its members are derived from, and the recipes."""


class Case(NamedTuple):
    """One recipe of one class."""

    namespace: str
    name: str
    recipe: Recipe

    def __str__(self) -> str:
        variant = f" ({self.recipe.variant})" if self.recipe.variant else ""
        return f"{self.namespace}.{self.name}{variant}"


def classes(namespace: str) -> dict[str, list[str]]:
    """The public classes of a namespace that can have state, each by its (first) name, with its other names."""
    module, base, _ = NAMESPACES[namespace]
    names: dict[type, list[str]] = {}
    for name, kind in vars(module).items():
        if inspect.isclass(kind) and issubclass(kind, base) and not name.startswith("_"):
            names.setdefault(kind, []).append(name)
    firsts = {kind: kind.__name__ if kind.__name__ in own else own[0] for kind, own in names.items()}
    return {firsts[kind]: [name for name in own if name != firsts[kind]] for kind, own in names.items()}


def cases() -> Iterator[Case]:
    """Every recipe of every class that this Keras has."""
    for namespace, (_, _, recipes) in NAMESPACES.items():
        for name in classes(namespace):
            for recipe in recipes.get(name, ()):
                yield Case(namespace, name, recipe)


def without_recipe() -> list[str]:
    """Classes that nobody has written a recipe for."""
    return [
        f"keras.{namespace}.{name}"
        for namespace, (_, _, recipes) in NAMESPACES.items()
        for name in classes(namespace)
        if name not in recipes
    ]
