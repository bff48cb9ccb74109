"""Recipes of core layers, convolutions, pooling, normalization, attention, merging, regularization and reshaping."""

from __future__ import annotations

from typing import Any

from tests.zoo.recipe import FILM, IMAGE, SEQUENCE, SMALL_IMAGE, TOKENS, VECTOR, VOLUME, Recipe, keras, of, recipe

L: Any = keras.layers
BY_RANK = {1: SEQUENCE, 2: SMALL_IMAGE, 3: VOLUME}


class CustomLayer(L.Layer):
    """A user's own layer: weights of its own, a layer inside, a counter and randomness."""

    def __init__(self):
        super().__init__()
        self.inner = L.Dense(3)
        self.noise = keras.random.SeedGenerator(5)

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="random_normal", name="scale")
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")
        self.inner.build(shape)

    def call(self, x):
        self.calls.assign_add(1.0)
        return self.inner(x * self.scale + keras.random.normal(keras.ops.shape(x), seed=self.noise))


def _quantized(mode):
    return keras.dtype_policies.get(mode)


def _lora(layer):
    layer.enable_lora(2)


def _quantize(layer):
    layer.quantize("int8")


def _projections(make, inputs):
    """A layer that can be quantized and adapted, in all its ways."""
    return [
        recipe(make, *inputs),
        recipe(lambda: make(lora_rank=2), *inputs, variant="lora_rank"),
        recipe(make, *inputs, variant="enable_lora() after build", then=_lora),
        recipe(lambda: make(dtype=_quantized("int8_from_float32")), *inputs, variant="int8"),
        recipe(lambda: make(dtype=_quantized("int4_from_float32")), *inputs, variant="int4"),
        recipe(make, *inputs, variant="quantize() after build", then=_quantize, then_first=True),
        recipe(lambda: make(dtype=_quantized("int8_from_float32"), lora_rank=2), *inputs, variant="int8 and LoRA"),
    ]


def _dense(**options):
    return L.Dense(3, **options)


def _einsum(**options):
    return L.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d", **options)


def _embedding(**options):
    return L.Embedding(7, 4, **options)


def _reversible(**options):
    return L.ReversibleEmbedding(7, 4, **options)


CORE: dict[str, list[Recipe]] = {
    "Layer": [recipe(CustomLayer, VECTOR)],
    "Dense": [
        *_projections(_dense, (VECTOR,)),
        recipe(lambda: L.Dense(3, dtype=_quantized("float8_from_float32")), VECTOR, variant="float8"),
        recipe(lambda: L.Dense(3, dtype="mixed_bfloat16"), VECTOR, variant="mixed_bfloat16"),
        recipe(lambda: L.Dense(3, dtype="bfloat16"), VECTOR, variant="bfloat16"),
        recipe(lambda: L.Dense(3, dtype="float16"), VECTOR, variant="float16"),
    ],
    "EinsumDense": _projections(_einsum, (SEQUENCE,)),
    "Embedding": _projections(_embedding, (TOKENS,)),
    "ReversibleEmbedding": [
        recipe(_reversible, TOKENS),
        recipe(lambda: _reversible(tie_weights=False), TOKENS, variant="tie_weights=False"),
        recipe(lambda: _reversible(dtype=_quantized("int8_from_float32")), TOKENS, variant="int8"),
    ],
    "Activation": [recipe(lambda: L.Activation("tanh"), VECTOR)],
    "Identity": [recipe(lambda: L.Identity(), VECTOR)],
    "InputLayer": [recipe(lambda: keras.Sequential([L.InputLayer(shape=(6,)), L.Dense(3)]), VECTOR)],
    "Lambda": [recipe(lambda: L.Lambda(lambda x: x * 2), VECTOR)],
    "Masking": [recipe(lambda: L.Masking(), SEQUENCE)],
}

ACTIVATIONS: dict[str, list[Recipe]] = {
    "PReLU": [recipe(lambda: L.PReLU(), VECTOR)],
    **{
        name: [recipe(of(L, name), VECTOR)]
        for name in ("ELU", "LeakyReLU", "ReLU", "Softmax", "ActivityRegularization", "UnitNormalization")
    },
}

CONVOLUTIONS: dict[str, list[Recipe]] = {
    **{
        name: [recipe(of(L, name, 3, 2), BY_RANK[int(name[4])])]
        for rank in (1, 2, 3)
        for name in (f"Conv{rank}D", f"Conv{rank}DTranspose")
    },
    **{f"DepthwiseConv{n}D": [recipe(of(L, f"DepthwiseConv{n}D", 2), BY_RANK[n])] for n in (1, 2)},
    **{f"SeparableConv{n}D": [recipe(of(L, f"SeparableConv{n}D", 3, 2), BY_RANK[n])] for n in (1, 2)},
}
CONVOLUTIONS["Conv2D"].append(recipe(lambda: L.Conv2D(2, 2, groups=2), SMALL_IMAGE, variant="groups"))
for _rank in (1, 2, 3):
    CONVOLUTIONS[f"Conv{_rank}D"].append(
        recipe(of(L, f"Conv{_rank}D", 3, 2, lora_rank=2), BY_RANK[_rank], variant="lora_rank")
    )

POOLING: dict[str, list[Recipe]] = {
    f"{kind}Pooling{rank}D": [
        recipe(
            of(L, f"{kind}Pooling{rank}D", *arguments),
            BY_RANK[rank],
        )
    ]
    for kind, arguments in {
        "Max": (2,),
        "Average": (2,),
        "GlobalMax": (),
        "GlobalAverage": (),
        "AdaptiveMax": (2,),
        "AdaptiveAverage": (2,),
    }.items()
    for rank in (1, 2, 3)
}

RESHAPING: dict[str, list[Recipe]] = {
    **{
        f"{kind}{rank}D": [
            recipe(
                of(L, f"{kind}{rank}D", size),
                BY_RANK[rank],
            )
        ]
        for kind, size in {"Cropping": 1, "UpSampling": 2, "ZeroPadding": 1}.items()
        for rank in (1, 2, 3)
    },
    "Flatten": [recipe(lambda: L.Flatten(), SEQUENCE)],
    "Permute": [recipe(lambda: L.Permute((2, 1)), SEQUENCE)],
    "RepeatVector": [recipe(lambda: L.RepeatVector(3), VECTOR)],
    "Reshape": [recipe(lambda: L.Reshape((3, 2)), VECTOR)],
}

NORMALIZATION: dict[str, list[Recipe]] = {
    "BatchNormalization": [
        recipe(lambda: L.BatchNormalization(), VECTOR, trains=True),
        recipe(lambda: L.BatchNormalization(renorm=True), VECTOR, variant="renorm", trains=True),
    ],
    "GroupNormalization": [recipe(lambda: L.GroupNormalization(2), VECTOR)],
    "LayerNormalization": [recipe(lambda: L.LayerNormalization(), VECTOR)],
    "RMSNormalization": [recipe(lambda: L.RMSNormalization(), VECTOR)],
    "SpectralNormalization": [
        recipe(lambda: L.SpectralNormalization(L.Dense(3)), VECTOR, trains=True),
        recipe(lambda: L.SpectralNormalization(L.Conv2D(3, 2)), SMALL_IMAGE, variant="of Conv2D", trains=True),
    ],
}

ATTENTION: dict[str, list[Recipe]] = {
    "Attention": [
        recipe(lambda: L.Attention(), [SEQUENCE, SEQUENCE]),
        recipe(
            lambda: L.Attention(use_scale=True, score_mode="concat", dropout=0.3, seed=4),
            [SEQUENCE, SEQUENCE],
            variant="scale, concat, dropout",
            trains=True,
        ),
    ],
    "AdditiveAttention": [recipe(lambda: L.AdditiveAttention(), [SEQUENCE, SEQUENCE])],
    "MultiHeadAttention": [
        recipe(lambda: L.MultiHeadAttention(2, 3), SEQUENCE, SEQUENCE),
        recipe(
            lambda: L.MultiHeadAttention(2, 3, dropout=0.3, seed=4), SEQUENCE, SEQUENCE, variant="dropout", trains=True
        ),
    ],
    "GroupQueryAttention": [recipe(lambda: L.GroupQueryAttention(3, 4, 2), SEQUENCE, SEQUENCE)],
}

MERGING: dict[str, list[Recipe]] = {
    **{
        name: [recipe(of(L, name), [VECTOR, VECTOR + 1])]
        for name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
    },
    "Dot": [recipe(lambda: L.Dot(1), [VECTOR, VECTOR + 1])],
}

NOISE: dict[str, list[Recipe]] = {
    **{
        name: [recipe(of(L, name, 0.4, seed=4), VECTOR, trains=True)]
        for name in ("Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise")
    },
    **{
        f"SpatialDropout{rank}D": [recipe(of(L, f"SpatialDropout{rank}D", 0.4, seed=4), inputs, trains=True)]
        for rank, inputs in {1: SEQUENCE, 2: IMAGE, 3: FILM}.items()
    },
}

RECIPES = {
    **CORE,
    **ACTIVATIONS,
    **CONVOLUTIONS,
    **POOLING,
    **RESHAPING,
    **NORMALIZATION,
    **ATTENTION,
    **MERGING,
    **NOISE,
}
