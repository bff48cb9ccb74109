"""Recipes of modules without values: activations, pooling, padding, reshaping, dropout, distances, most losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tests.zoo_torch.recipe import CLASSES, IMAGE, LINE, SEQUENCE, VECTOR, VOLUME, Recipe, grid, of, torch

nn: Any = torch.nn
BY_RANK = {1: LINE, 2: IMAGE, 3: VOLUME}
SIGNS = torch.where(VECTOR > 0, 1.0, -1.0)
CHANCES = VECTOR.sigmoid()
LOGARITHMS = VECTOR.log_softmax(-1)


def _ranked(names: str, make: Callable[[Any, int], Any]) -> dict[str, list[Recipe]]:
    """A recipe for each class of these names, in which ``?`` stands for the rank."""
    found = {}
    for pattern in names.split():
        for rank in (1, 2, 3) if "?" in pattern else (2,):
            name = pattern.replace("?", str(rank))
            kind = getattr(nn, name, None)
            if kind is not None:
                found[name] = [of(partial(make, kind, rank), BY_RANK[rank])]
    return found


def _simple(names: str, *inputs: Any) -> dict[str, list[Recipe]]:
    return {name: [of(getattr(nn, name), *inputs)] for name in names.split() if hasattr(nn, name)}


def _unpool(rank: int) -> list[Recipe]:
    pool = getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)
    return [of(lambda: getattr(nn, f"MaxUnpool{rank}d")(2), *pool(BY_RANK[rank]))]


def _distance(one: Any, other: Any) -> Any:
    return (one - other).abs().sum(-1)


def _merged(tables: Iterable[dict[str, list[Recipe]]]) -> dict[str, list[Recipe]]:
    return {name: recipes for table in tables for name, recipes in table.items()}


ACTIVATIONS = _simple(
    "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish RReLU ReLU ReLU6 SELU SiLU "
    "Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Identity Dropout AlphaDropout FeatureAlphaDropout Flatten",
    VECTOR,
) | {
    "LogSoftmax": [of(lambda: nn.LogSoftmax(-1), VECTOR)],
    "Softmax": [of(lambda: nn.Softmax(-1), VECTOR)],
    "Softmin": [of(lambda: nn.Softmin(-1), VECTOR)],
    "Softmax2d": [of(nn.Softmax2d, IMAGE)],
    "Threshold": [of(lambda: nn.Threshold(0.1, 0.5), VECTOR)],
}
PLACES = _merged(
    [
        _ranked("AdaptiveAvgPool?d AdaptiveMaxPool?d", lambda kind, rank: kind(2)),
        _ranked("AvgPool?d MaxPool?d", lambda kind, rank: kind(2)),
        _ranked("LPPool?d", lambda kind, rank: kind(2.0, 2)),
        _ranked("FractionalMaxPool2d", lambda kind, rank: kind(2, output_size=3)),
        _ranked(
            "CircularPad?d ConstantPad?d ReflectionPad?d ReplicationPad?d ZeroPad?d", lambda kind, rank: _pad(kind)
        ),
        _ranked("Dropout?d", lambda kind, rank: kind(0.5)),
        _ranked("ChannelShuffle PixelShuffle PixelUnshuffle", lambda kind, rank: kind(2)),
        _ranked("UpsamplingBilinear2d UpsamplingNearest2d Upsample", lambda kind, rank: kind(scale_factor=2)),
        _ranked("LocalResponseNorm CrossMapLRN2d", lambda kind, rank: kind(2)),
        {f"MaxUnpool{rank}d": _unpool(rank) for rank in BY_RANK},
    ]
) | {
    "FractionalMaxPool3d": [of(lambda: nn.FractionalMaxPool3d(2, output_size=2), VOLUME)],
    "Fold": [of(lambda: nn.Fold((4, 4), 2, stride=2), grid(2, 8, 4))],
    "Unfold": [of(lambda: nn.Unfold(2), IMAGE)],
    "Unflatten": [of(lambda: nn.Unflatten(1, (2, 3)), VECTOR)],
    "CosineSimilarity": [of(nn.CosineSimilarity, VECTOR, VECTOR.flip(0))],
    "PairwiseDistance": [of(nn.PairwiseDistance, VECTOR, VECTOR.flip(0))],
}


def _pad(kind: Any) -> Any:
    return kind(1, 0.5) if kind.__name__.startswith("Constant") else kind(1)


LOSSES = _simple("HuberLoss KLDivLoss L1Loss MSELoss SmoothL1Loss PoissonNLLLoss", LOGARITHMS, VECTOR.softmax(-1)) | {
    "BCELoss": [of(nn.BCELoss, CHANCES, CHANCES.flip(0))],
    "BCEWithLogitsLoss": [of(nn.BCEWithLogitsLoss, VECTOR, CHANCES)],
    "CTCLoss": [
        of(
            nn.CTCLoss,
            SEQUENCE.log_softmax(-1),
            torch.tensor([[1, 2], [3, 1]]),
            torch.tensor([5, 5]),
            torch.tensor([2, 2]),
        )
    ],
    "CosineEmbeddingLoss": [of(nn.CosineEmbeddingLoss, VECTOR, VECTOR.flip(0), SIGNS[:, 0])],
    "CrossEntropyLoss": [of(nn.CrossEntropyLoss, VECTOR, CLASSES)],
    "GaussianNLLLoss": [of(nn.GaussianNLLLoss, VECTOR, VECTOR.flip(0), CHANCES)],
    "HingeEmbeddingLoss": [of(nn.HingeEmbeddingLoss, VECTOR, SIGNS)],
    "MarginRankingLoss": [of(nn.MarginRankingLoss, VECTOR, VECTOR.flip(0), SIGNS)],
    "MultiLabelMarginLoss": [of(nn.MultiLabelMarginLoss, VECTOR, torch.tensor([[3, 0, -1, 1, 2, -1]] * 4))],
    "MultiLabelSoftMarginLoss": [of(nn.MultiLabelSoftMarginLoss, VECTOR, CHANCES)],
    "MultiMarginLoss": [of(nn.MultiMarginLoss, VECTOR, CLASSES)],
    "NLLLoss": [of(nn.NLLLoss, LOGARITHMS, CLASSES)],
    "NLLLoss2d": [of(nn.NLLLoss2d, IMAGE.log_softmax(1), torch.ones(2, 8, 8, dtype=torch.int64))],
    "SoftMarginLoss": [of(nn.SoftMarginLoss, VECTOR, SIGNS)],
    "TripletMarginLoss": [of(nn.TripletMarginLoss, VECTOR, VECTOR.flip(0), VECTOR.flip(1))],
    "TripletMarginWithDistanceLoss": [
        of(
            lambda: nn.TripletMarginWithDistanceLoss(distance_function=_distance),
            VECTOR,
            VECTOR.flip(0),
            VECTOR.flip(1),
        )
    ],
}
RECIPES = _merged([ACTIVATIONS, PLACES, LOSSES])
