"""Recipes of preprocessing layers: text, numbers, sound, images and their augmentation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.zoo.recipe import (
    IMAGE,
    LONG_SEQUENCE,
    OTHER_WORDS,
    VECTOR,
    WORDS,
    Recipe,
    keras,
    of,
    recipe,
)

L: Any = keras.layers
NUMBERS = np.array([[7], [9], [7], [11]], "int64")
LABELLED = {"images": IMAGE, "labels": np.eye(2, dtype="float32")}
BOXED = {
    "images": IMAGE,
    "bounding_boxes": {"boxes": np.full((2, 3, 4), 2, "float32"), "labels": np.ones((2, 3), "int32")},
}


def _adapt_words(layer, saved):
    layer.adapt(WORDS if saved else OTHER_WORDS)


def _adapt_numbers(layer, saved):
    layer.adapt(NUMBERS if saved else NUMBERS + 7)


def _adapt_vectors(layer, saved):
    layer.adapt(VECTOR * 3 + 1 if saved else VECTOR[:3])


def _lookup(make, inputs, adapt, variant=""):
    return recipe(make, inputs, variant=variant, adapt=adapt, shifts=lambda variable: variable.name == "count")


TEXT_AND_NUMBERS: dict[str, list[Recipe]] = {
    "StringLookup": [
        _lookup(lambda: L.StringLookup(), WORDS, _adapt_words),
        _lookup(lambda: L.StringLookup(output_mode="multi_hot"), WORDS, _adapt_words, "multi_hot"),
        _lookup(lambda: L.StringLookup(output_mode="tf_idf"), WORDS, _adapt_words, "tf_idf"),
        _lookup(lambda: L.StringLookup(num_oov_indices=2, mask_token=""), WORDS, _adapt_words, "two unknown, a mask"),
        recipe(lambda: L.StringLookup(vocabulary=["tide", "mast"]), WORDS, variant="given vocabulary"),
    ],
    "IntegerLookup": [
        _lookup(lambda: L.IntegerLookup(), NUMBERS, _adapt_numbers),
        _lookup(lambda: L.IntegerLookup(output_mode="one_hot"), NUMBERS, _adapt_numbers, "one_hot"),
        recipe(lambda: L.IntegerLookup(vocabulary=[7, 11]), NUMBERS, variant="given vocabulary"),
    ],
    "TextVectorization": [
        _lookup(lambda: L.TextVectorization(), WORDS, _adapt_words),
        _lookup(lambda: L.TextVectorization(output_mode="tf_idf", ngrams=2), WORDS, _adapt_words, "tf_idf"),
        _lookup(lambda: L.TextVectorization(output_mode="multi_hot"), WORDS, _adapt_words, "multi_hot"),
    ],
    "Discretization": [
        _lookup(lambda: L.Discretization(num_bins=3), VECTOR, _adapt_vectors),
        recipe(lambda: L.Discretization(bin_boundaries=[-0.5, 0.5]), VECTOR, variant="given boundaries"),
    ],
    "Normalization": [
        _lookup(lambda: L.Normalization(), VECTOR, _adapt_vectors),
        _lookup(lambda: L.Normalization(axis=None), VECTOR, _adapt_vectors, "axis=None"),
        _lookup(lambda: L.Normalization(invert=True), VECTOR, _adapt_vectors, "invert"),
        recipe(lambda: L.Normalization(mean=1.0, variance=2.0), VECTOR, variant="given mean"),
    ],
    "CategoryEncoding": [recipe(lambda: L.CategoryEncoding(num_tokens=6), np.array([[1, 2], [3, 5]], "int32"))],
    "Hashing": [recipe(lambda: L.Hashing(5), WORDS)],
    "HashedCrossing": [recipe(lambda: L.HashedCrossing(5), (WORDS, WORDS[::-1]))],
    "Rescaling": [recipe(lambda: L.Rescaling(0.5, 1.0), VECTOR)],
}

SOUND: dict[str, list[Recipe]] = {
    "MelSpectrogram": [
        recipe(lambda: L.MelSpectrogram(fft_length=16, sequence_stride=8, num_mel_bins=4), LONG_SEQUENCE[:, :, 0])
    ],
    "STFTSpectrogram": [recipe(lambda: L.STFTSpectrogram(frame_length=8, frame_step=4), LONG_SEQUENCE)],
}

_FACTOR = (
    "RandomBrightness",
    "RandomColorDegeneration",
    "RandomContrast",
    "RandomHue",
    "RandomPosterization",
    "RandomRotation",
    "RandomSharpness",
)
_NO_ARGUMENT = (
    "RandomElasticTransform",
    "RandomErasing",
    "RandomFlip",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPerspective",
)

AUGMENTATION: dict[str, list[Recipe]] = {
    **{
        name: [recipe(of(L, name, 0.3, seed=4), IMAGE, trains=True)]
        for name in _FACTOR
        if name != "RandomPosterization"
    },
    **{name: [recipe(of(L, name, seed=4), IMAGE, trains=True)] for name in _NO_ARGUMENT},
    "AugMix": [
        recipe(
            lambda: L.AugMix(num_chains=1, chain_depth=1, seed=4),  # JAX compiles each chain; the state is the same
            IMAGE,
            trains=True,
            alone="it draws from Python's random numbers, and building a model uses some up",
        )
    ],
    "RandomPosterization": [recipe(lambda: L.RandomPosterization(4, seed=4), IMAGE, trains=True)],
    "RandAugment": [recipe(lambda: L.RandAugment(num_ops=1, seed=4), IMAGE, trains=True)],
    "RandomSaturation": [recipe(lambda: L.RandomSaturation(0.7, seed=4), IMAGE, trains=True)],
    "RandomColorJitter": [
        recipe(
            lambda: L.RandomColorJitter(
                brightness_factor=0.3, contrast_factor=0.3, saturation_factor=0.3, hue_factor=0.3, seed=4
            ),
            IMAGE,
            trains=True,
        )
    ],
    "RandomCrop": [recipe(lambda: L.RandomCrop(5, 5, seed=4), IMAGE, trains=True)],
    "RandomShear": [recipe(lambda: L.RandomShear(0.3, 0.3, seed=4), IMAGE, trains=True)],
    "RandomTranslation": [recipe(lambda: L.RandomTranslation(0.3, 0.3, seed=4), IMAGE, trains=True)],
    "RandomZoom": [recipe(lambda: L.RandomZoom(0.3, 0.3, seed=4), IMAGE, trains=True)],
    "MixUp": [recipe(lambda: L.MixUp(seed=4), LABELLED, trains=True)],
    "CutMix": [recipe(lambda: L.CutMix(seed=4), LABELLED, trains=True)],
    "Solarization": [recipe(lambda: L.Solarization(0.3, 0.3, seed=4), IMAGE, trains=True)],
    "Pipeline": [
        recipe(
            lambda: L.Pipeline([L.RandomFlip(seed=4), L.Rescaling(0.1), L.RandomBrightness(0.3, seed=5)]),
            IMAGE,
            trains=True,
        )
    ],
}

IMAGES: dict[str, list[Recipe]] = {
    "AutoContrast": [recipe(lambda: L.AutoContrast(), IMAGE)],
    "CenterCrop": [recipe(lambda: L.CenterCrop(5, 5), IMAGE)],
    "ContrastLimitedAdaptiveHistogramEqualization": [
        recipe(lambda: L.ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2)), IMAGE)
    ],
    "Equalization": [recipe(lambda: L.Equalization(), IMAGE)],
    "MaxNumBoundingBoxes": [recipe(lambda: L.MaxNumBoundingBoxes(5, bounding_box_format="xyxy"), BOXED)],
    "Resizing": [recipe(lambda: L.Resizing(4, 4), IMAGE)],
}

RECIPES = {**TEXT_AND_NUMBERS, **SOUND, **AUGMENTATION, **IMAGES}
