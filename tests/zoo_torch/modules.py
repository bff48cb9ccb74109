"""Recipes of modules that have values."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.zoo_torch.modules_stateless import CHANCES, LOGARITHMS
from tests.zoo_torch.recipe import (
    CLASSES,
    IMAGE,
    LINE,
    SEQUENCE,
    TOKENS,
    VECTOR,
    VOLUME,
    Recipe,
    grid,
    of,
    torch,
)

nn: Any = torch.nn
BY_RANK = {1: LINE, 2: IMAGE, 3: VOLUME}


class CustomModule(nn.Module):
    """A user's own module: parameters, buffers, a layer inside, extra state and a generator."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.randn(6))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.ones(6, device="cpu"), persistent=False)
        self.noise = torch.Generator().manual_seed(int(torch.randint(1000, (), device="cpu")))
        self.history = [float(torch.rand((), device="cpu"))]

    def get_extra_state(self):
        return {"history": self.history, "last": torch.tensor(self.history[-1:], device="cpu")}

    def set_extra_state(self, state):
        self.history = state["history"]

    def forward(self, x):
        self.seen += 1
        self.history.append(float(x.sum()))
        drawn = torch.rand(x.shape, generator=self.noise, device="cpu")
        return self.inner(x * self.scale * self.cache + drawn) + sum(self.history)


def _ranked(pattern: str, make: Any, **options: Any) -> dict[str, list[Recipe]]:
    found = {}
    for rank, x in BY_RANK.items():
        kind = getattr(nn, pattern.replace("?", str(rank)))
        found[kind.__name__] = [
            of(
                partial(make, kind, **settings),
                x.to(settings.get("dtype")),
                variant=variant,
                **options,
            )
            for variant, settings in _VARIANTS[pattern.removeprefix("Lazy")].items()
        ]
    return found


_CONV: dict[str, dict[str, Any]] = {"": {}, "groups, no bias": {"groups": 2, "bias": False}}
_NORM: dict[str, dict[str, Any]] = {"": {}, "no statistics": {"track_running_stats": False}}
_VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "Conv?d": _CONV | {"padding_mode": {"padding": 1, "padding_mode": "circular"}, "float64": {"dtype": torch.float64}},
    "ConvTranspose?d": _CONV,
    "BatchNorm?d": _NORM | {"not affine": {"affine": False}, "cumulative": {"momentum": None}},
    "InstanceNorm?d": {"": {}, "affine, statistics": {"affine": True, "track_running_stats": True}},
}


CONVOLUTIONS = (
    _ranked("Conv?d", lambda kind, **settings: kind(4, 6, 3, **settings))
    | _ranked("ConvTranspose?d", lambda kind, **settings: kind(4, 6, 3, **settings))
    | _ranked("BatchNorm?d", lambda kind, **settings: kind(4, **settings))
    | _ranked("InstanceNorm?d", lambda kind, **settings: kind(4, **settings))
)
LAZY = (
    _ranked("LazyConv?d", lambda kind, **settings: kind(6, 3, **settings), lazy=True)
    | _ranked("LazyConvTranspose?d", lambda kind, **settings: kind(6, 3, **settings), lazy=True)
    | _ranked("LazyBatchNorm?d", lambda kind, **settings: kind(**settings), lazy=True)
    | _ranked("LazyInstanceNorm?d", lambda kind, **settings: kind(**settings), lazy=True)
    | {
        "LazyLinear": [
            of(lambda: nn.LazyLinear(3), VECTOR, lazy=True),
            of(lambda: nn.LazyLinear(3, bias=False), VECTOR, variant="no bias", lazy=True),
        ]
    }
)


def _channels_last() -> Any:
    return nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)


CONVOLUTIONS["Conv2d"].append(of(_channels_last, IMAGE, variant="channels_last"))


def _recurrent(kind: Any) -> list[Recipe]:
    variants: dict[str, dict[str, Any]] = {
        "": {},
        "two layers, bidirectional": {"num_layers": 2, "bidirectional": True},
        "no bias, dropout": {"num_layers": 2, "bias": False, "dropout": 0.5},
    }
    if kind is nn.LSTM:
        variants["proj_size"] = {"proj_size": 2}
    return [of(partial(kind, 4, 3, **settings), SEQUENCE, variant=variant) for variant, settings in variants.items()]


RECURRENT = {kind.__name__: _recurrent(kind) for kind in (nn.RNN, nn.LSTM, nn.GRU)} | {
    kind.__name__: [of(partial(kind, 6, 3), VECTOR)] for kind in (nn.RNNCell, nn.LSTMCell, nn.GRUCell)
}
RECURRENT["RNNBase"] = [of(lambda: nn.RNNBase("GRU", 4, 3), call=None)]
RECURRENT["RNNCellBase"] = [of(lambda: nn.RNNCellBase(4, 3, True, 2), call=None)]


def _encoder_layer() -> Any:
    return nn.TransformerEncoderLayer(4, 2, 8)


def _decoder_layer() -> Any:
    return nn.TransformerDecoderLayer(4, 2, 8)


ATTENTION = {
    "MultiheadAttention": [
        of(lambda: nn.MultiheadAttention(4, 2, dropout=0.5), SEQUENCE, SEQUENCE, SEQUENCE),
        of(
            lambda: nn.MultiheadAttention(4, 2, kdim=6, vdim=3, add_bias_kv=True),
            SEQUENCE,
            grid(5, 2, 6),
            grid(5, 2, 3),
            variant="kdim, vdim, add_bias_kv",
        ),
    ],
    "TransformerEncoderLayer": [
        of(_encoder_layer, SEQUENCE),
        of(
            lambda: nn.TransformerEncoderLayer(4, 2, 8, norm_first=True, bias=False),
            SEQUENCE,
            variant="norm_first, no bias",
        ),
    ],
    "TransformerDecoderLayer": [of(_decoder_layer, SEQUENCE, SEQUENCE)],
    "TransformerEncoder": [of(lambda: nn.TransformerEncoder(_encoder_layer(), 2, nn.LayerNorm(4)), SEQUENCE)],
    "TransformerDecoder": [of(lambda: nn.TransformerDecoder(_decoder_layer(), 2), SEQUENCE, SEQUENCE)],
    "Transformer": [of(lambda: nn.Transformer(4, 2, 1, 1, 8), SEQUENCE, SEQUENCE)],
}


def _tied() -> Any:
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    net[1].weight = net[0].weight
    return net


CONTAINERS = {
    "Module": [of(CustomModule, VECTOR, variant="a user's own")],
    "Container": [of(lambda: nn.Container(inner=nn.Linear(2, 2)), call=None)],
    "Sequential": [
        of(lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout(), nn.Sequential(nn.ReLU(), nn.Linear(3, 2))), VECTOR),
        of(_tied, VECTOR, variant="tied weights"),
    ],
    "ModuleList": [
        of(lambda: nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 2)]), call=lambda m: [f(VECTOR) for f in m])
    ],
    "ModuleDict": [
        of(
            lambda: nn.ModuleDict({"a": nn.Linear(6, 3), "b": nn.PReLU()}),
            call=lambda m: [f(VECTOR) for f in m.values()],
        )
    ],
    "ParameterList": [
        of(lambda: nn.ParameterList([torch.randn(2), torch.randn(3)]), call=lambda m: [p * 2 for p in m])
    ],
    "ParameterDict": [of(lambda: nn.ParameterDict({"a": torch.randn(2)}), call=lambda m: m["a"] * 2)],
    "DataParallel": [of(lambda: nn.DataParallel(nn.Linear(6, 3)), VECTOR)],
}


OTHERS = {
    "Linear": [
        of(lambda: nn.Linear(6, 3), VECTOR),
        of(lambda: nn.Linear(6, 3, bias=False), VECTOR, variant="no bias"),
        of(lambda: nn.Linear(6, 3, dtype=torch.bfloat16), VECTOR.bfloat16(), variant="bfloat16"),
        of(lambda: nn.Linear(6, 3, dtype=torch.float16), VECTOR.half(), variant="float16"),
        of(lambda: nn.Linear(6, 3, dtype=torch.complex64), VECTOR.to(torch.complex64), variant="complex64"),
    ],
    "Bilinear": [of(lambda: nn.Bilinear(6, 6, 2), VECTOR, VECTOR.flip(0))],
    "Embedding": [
        of(lambda: nn.Embedding(7, 3), TOKENS),
        of(lambda: nn.Embedding(7, 3, padding_idx=0, max_norm=1.0), TOKENS, variant="padding_idx, max_norm"),
        of(lambda: nn.Embedding(7, 3, sparse=True), TOKENS, variant="sparse gradients"),
    ],
    "EmbeddingBag": [of(lambda: nn.EmbeddingBag(7, 3), TOKENS)],
    "PReLU": [of(nn.PReLU, VECTOR), of(lambda: nn.PReLU(6), VECTOR, variant="one for each channel")],
    "GroupNorm": [of(lambda: nn.GroupNorm(2, 4), IMAGE)],
    "LayerNorm": [
        of(lambda: nn.LayerNorm(6), VECTOR),
        of(lambda: nn.LayerNorm(6, bias=False), VECTOR, variant="no bias"),
    ],
    "RMSNorm": [of(lambda: nn.RMSNorm(6), VECTOR)],
    "SyncBatchNorm": [of(lambda: nn.SyncBatchNorm(4), IMAGE, trains=False)],
    "AdaptiveLogSoftmaxWithLoss": [
        of(lambda: nn.AdaptiveLogSoftmaxWithLoss(6, 8, [2, 4], div_value=2), VECTOR, CLASSES)
    ],
    "LinearCrossEntropyLoss": [of(lambda: nn.LinearCrossEntropyLoss(6, 3, bias=True), VECTOR, CLASSES)],
}
WEIGHTED = {
    "BCELoss": [of(lambda: nn.BCELoss(torch.rand(6)), CHANCES, CHANCES.flip(0), variant="weight")],
    "BCEWithLogitsLoss": [
        of(lambda: nn.BCEWithLogitsLoss(torch.rand(6), pos_weight=torch.rand(6)), VECTOR, CHANCES, variant="weights")
    ],
    "CrossEntropyLoss": [of(lambda: nn.CrossEntropyLoss(torch.rand(6)), VECTOR, CLASSES, variant="weight")],
    "MultiLabelSoftMarginLoss": [
        of(lambda: nn.MultiLabelSoftMarginLoss(torch.rand(6)), VECTOR, CHANCES, variant="weight")
    ],
    "MultiMarginLoss": [of(lambda: nn.MultiMarginLoss(weight=torch.rand(6)), VECTOR, CLASSES, variant="weight")],
    "NLLLoss": [of(lambda: nn.NLLLoss(torch.rand(6)), LOGARITHMS, CLASSES, variant="weight")],
}
RECIPES = CONVOLUTIONS | LAZY | RECURRENT | ATTENTION | CONTAINERS | OTHERS
