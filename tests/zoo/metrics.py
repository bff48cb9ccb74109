"""Recipes of metrics: how to make each, and the arguments of three updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.zoo.recipe import Recipe, keras, of, recipe

M: Any = keras.metrics


class CustomMetric(M.Metric):
    """A user's own metric, with another one inside."""

    def __init__(self):
        super().__init__()
        self.largest = self.add_variable((), "zeros", name="largest")
        self.mean = M.Mean()

    def update_state(self, values):
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(values)))
        self.mean.update_state(values)

    def result(self):
        return self.largest + self.mean.result()


def _updates(truths, guesses):
    return tuple(
        (np.array(truth, "float32"), np.array(guess, "float32")) for truth, guess in zip(truths, guesses, strict=True)
    )


BINARY = _updates(
    [[0, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 1]],
    [[0.1, 0.7, 0.3, 0.6], [0.8, 0.45, 0.2, 0.9], [0.3, 0.2, 0.6, 0.95]],
)
ONE_HOT = _updates(
    [np.eye(3), np.eye(3)[[2, 0, 1]], np.eye(3)[[1, 1, 2]]],
    [
        [[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.5, 0.3, 0.2]],
        [[0.1, 0.3, 0.6], [0.2, 0.6, 0.2], [0.4, 0.35, 0.25]],
        [[0.25, 0.5, 0.25], [0.6, 0.3, 0.1], [0.2, 0.1, 0.7]],
    ],
)
SPARSE = tuple((truth.argmax(-1), guess) for truth, guess in ONE_HOT)
CLASSES = tuple((truth.argmax(-1), guess.argmax(-1)) for truth, guess in ONE_HOT)
SIGNS = tuple((truth * 2 - 1, guess) for truth, guess in BINARY)
VALUES = tuple((guess,) for _, guess in BINARY)


def _plain(names, inputs):
    return {name: [recipe(of(M, name), *inputs)] for name in names.split() if hasattr(M, name)}


METRICS: dict[str, list[Recipe]] = {
    "Metric": [recipe(CustomMetric, *VALUES)],
    **_plain("Mean Sum", VALUES),
    **_plain(
        "BinaryAccuracy FalseNegatives FalsePositives TrueNegatives TruePositives Precision Recall BinaryIoU"
        " BinaryCrossentropy LogCoshError MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError"
        " MeanSquaredLogarithmicError RootMeanSquaredError Poisson",
        BINARY,
    ),
    **_plain("Hinge SquaredHinge", SIGNS),
    **_plain(
        "CategoricalAccuracy CategoricalCrossentropy CategoricalHinge KLDivergence CosineSimilarity"
        " F1Score FBetaScore R2Score ConcordanceCorrelation PearsonCorrelation",
        ONE_HOT,
    ),
    **_plain("Accuracy", CLASSES),
    **_plain("SparseCategoricalAccuracy SparseCategoricalCrossentropy", SPARSE),
    "TopKCategoricalAccuracy": [recipe(lambda: M.TopKCategoricalAccuracy(2), *ONE_HOT)],
    "SparseTopKCategoricalAccuracy": [recipe(lambda: M.SparseTopKCategoricalAccuracy(2), *SPARSE)],
    "AUC": [
        recipe(lambda: M.AUC(num_thresholds=20), *BINARY),
        recipe(lambda: M.AUC(num_thresholds=20, multi_label=True), *ONE_HOT, variant="multi_label"),
    ],
    **{
        name: [recipe(of(M, name, 0.5, num_thresholds=20), *BINARY)]
        for name in ("PrecisionAtRecall", "RecallAtPrecision", "SensitivityAtSpecificity", "SpecificityAtSensitivity")
    },
    "IoU": [recipe(lambda: M.IoU(3, [0, 2]), *CLASSES)],
    "MeanIoU": [recipe(lambda: M.MeanIoU(3), *CLASSES)],
    "OneHotIoU": [recipe(lambda: M.OneHotIoU(3, [0, 2]), *ONE_HOT)],
    "OneHotMeanIoU": [recipe(lambda: M.OneHotMeanIoU(3), *ONE_HOT)],
    "MeanMetricWrapper": [recipe(lambda: M.MeanMetricWrapper(keras.losses.mean_squared_error), *ONE_HOT)],
}
