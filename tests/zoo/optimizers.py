"""Recipes of optimizers and learning-rate schedules."""

from __future__ import annotations

from typing import Any

from tests.zoo.recipe import VECTOR, Recipe, keras, recipe

O: Any = keras.optimizers  # noqa: E741
S: Any = keras.optimizers.schedules


class CustomOptimizer(O.Optimizer):
    """A user's own optimizer, with one list filled by `append` and one scalar."""

    def build(self, variables):
        super().build(variables)
        self.total = self.add_variable((), name="total")
        self.traces = []
        for variable in variables:
            self.traces.append(self.add_variable_from_reference(variable, name="trace"))

    def update_step(self, gradient, variable, learning_rate):
        trace = self.traces[self._get_variable_index(variable)]
        self.assign_add(self.total, keras.ops.sum(keras.ops.abs(gradient)))
        self.assign(trace, 0.9 * trace + gradient)
        rate = keras.ops.cast(learning_rate, variable.dtype) / (1 + self.total)
        self.assign_sub(variable, rate * trace)


class CustomSchedule(S.LearningRateSchedule):
    """A user's own schedule, with a variable of its own."""

    def __init__(self):
        super().__init__()
        self.factor = keras.Variable(0.01, trainable=False, name="factor")

    def __call__(self, step):
        return self.factor / (1.0 + keras.ops.cast(step, "float32"))


def _options(kind):
    """An optimizer, plain and with what the common base class adds to each."""
    return [
        recipe(lambda: kind(0.01), VECTOR),
        recipe(
            lambda: kind(
                0.01, use_ema=True, ema_overwrite_frequency=2, gradient_accumulation_steps=2, weight_decay=0.1
            ),
            VECTOR,
            variant="average, accumulation, weight decay",
        ),
    ]


def _multi():
    mapping = O.OptimizerMap(O.Adam(0.01))
    mapping[".*bias"] = O.SGD(0.1, momentum=0.9)
    return O.MultiOptimizer(mapping)


def _following(schedule):
    """An optimizer that follows a schedule."""
    return recipe(lambda: O.Adam(schedule()), VECTOR)


OPTIMIZERS: dict[str, list[Recipe]] = {
    **{
        name: _options(getattr(O, name))
        for name in [
            "Adadelta",
            "Adafactor",
            "Adagrad",
            "Adam",
            "Adamax",
            "AdamW",
            "Ftrl",
            "Lamb",
            "Lion",
            "Muon",
            "Nadam",
            "RMSprop",
            "ScheduleFreeAdamW",
            "SGD",
        ]
        if hasattr(O, name)
    },
    "Optimizer": [recipe(lambda: CustomOptimizer(0.01), VECTOR)],
    "LossScaleOptimizer": [
        recipe(lambda: O.LossScaleOptimizer(O.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2), VECTOR)
    ],
    "MultiOptimizer": [recipe(_multi, VECTOR)],
}
OPTIMIZERS["Adam"] += [
    recipe(lambda: O.Adam(0.01, amsgrad=True), VECTOR, variant="amsgrad"),
    recipe(lambda: O.Adam(0.01, use_ema=True), VECTOR, variant="use_ema"),
    recipe(lambda: O.Adam(0.01, gradient_accumulation_steps=2), VECTOR, variant="gradient_accumulation_steps"),
    recipe(lambda: O.Adam(0.01, weight_decay=0.1, clipnorm=1.0), VECTOR, variant="weight_decay, clipnorm"),
]
OPTIMIZERS["AdamW"].append(recipe(lambda: O.AdamW(0.01, amsgrad=True), VECTOR, variant="amsgrad"))
OPTIMIZERS["SGD"] += [
    recipe(lambda: O.SGD(0.01, momentum=0.9), VECTOR, variant="momentum"),
    recipe(lambda: O.SGD(0.01, momentum=0.9, nesterov=True), VECTOR, variant="nesterov"),
]
OPTIMIZERS["RMSprop"] += [
    recipe(lambda: O.RMSprop(0.01, centered=True), VECTOR, variant="centered"),
    recipe(lambda: O.RMSprop(0.01, centered=True, momentum=0.5), VECTOR, variant="centered, momentum"),
]

SCHEDULES: dict[str, list[Recipe]] = {
    "CosineDecay": [_following(lambda: S.CosineDecay(0.01, 5, warmup_target=0.02, warmup_steps=2))],
    "CosineDecayRestarts": [_following(lambda: S.CosineDecayRestarts(0.01, 2))],
    "ExponentialDecay": [_following(lambda: S.ExponentialDecay(0.01, 2, 0.5))],
    "InverseTimeDecay": [_following(lambda: S.InverseTimeDecay(0.01, 2, 0.5))],
    "PiecewiseConstantDecay": [_following(lambda: S.PiecewiseConstantDecay([2, 4], [0.1, 0.01, 0.001]))],
    "PolynomialDecay": [_following(lambda: S.PolynomialDecay(0.01, 5))],
    "LearningRateSchedule": [_following(CustomSchedule)],
}
