"""Every metric of torchmetrics that needs no data or model from elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from benchmarks.libraries import torchvision_operators
from benchmarks.libraries.specimen import Specimen, UntriedError
from benchmarks.libraries.training import StateDict, start

torchvision_operators.define()
import torchmetrics as package
import torchmetrics.aggregation
import torchmetrics.audio
import torchmetrics.classification
import torchmetrics.clustering
import torchmetrics.detection
import torchmetrics.image
import torchmetrics.multimodal
import torchmetrics.nominal
import torchmetrics.regression
import torchmetrics.retrieval
import torchmetrics.segmentation
import torchmetrics.shape
import torchmetrics.text
import torchmetrics.wrappers

_AREAS = [
    "aggregation",
    "audio",
    "classification",
    "clustering",
    "detection",
    "image",
    "multimodal",
    "nominal",
    "regression",
    "retrieval",
    "segmentation",
    "shape",
    "text",
    "wrappers",
]
_BASES = {"Metric", "MetricCollection", "BaseAggregator", "RetrievalMetric", "MetricTracker", "CompositionalMetric"}
_COMMON: dict[str, Any] = {
    "num_classes": 3,
    "num_labels": 3,
    "num_outputs": 2,
    "num_tasks": 1,
    "min_precision": 0.5,
    "min_recall": 0.5,
    "min_sensitivity": 0.5,
    "min_specificity": 0.5,
    "beta": 0.5,
    "num_groups": 2,
    "threshold": 0.5,
    "p": 2,
    "data_range": 1.0,
    "min_fpr": 0.1,
}


def _float(*shape: int) -> Any:
    return torch.rand(*shape)


def _whole(most: int, *shape: int) -> Any:
    return torch.randint(0, most, shape)


def _boxes() -> Any:
    return [
        {
            "boxes": torch.tensor([[1.0, 1.0, 9.0, 9.0]]) + torch.rand(1),
            "scores": torch.rand(1),
            "labels": torch.tensor([1]),
        }
    ]


def _panes() -> Any:
    return torch.stack([torch.tensor([0, 1, 6, 7])[_whole(4, 2, 8, 8)], torch.zeros(2, 8, 8, dtype=torch.long)], -1)


# Arguments of an update, tried in turn until one fits.
_INPUTS: tuple[Callable[[], tuple[Any, ...]], ...] = (
    lambda: (_float(8), _whole(2, 8)),
    lambda: (_float(8, 3).softmax(1), _whole(3, 8)),
    lambda: (_float(8, 3), _whole(2, 8, 3)),
    lambda: (_float(8), _float(8)),
    lambda: (_float(8, 2), _float(8, 2)),
    lambda: (_float(8, 3).softmax(1), _float(8, 3).softmax(1)),
    lambda: (_whole(3, 8), _whole(3, 8)),
    lambda: (_float(8, 3), _whole(3, 8)),
    lambda: (_float(8), _whole(2, 8), _whole(2, 8)),
    lambda: (_float(8),),
    lambda: (_whole(4, 8, 3),),
    lambda: (_float(2, 3, 32, 32), _float(2, 3, 32, 32)),
    lambda: (_float(1, 3, 180, 180), _float(1, 3, 180, 180)),
    lambda: (_float(2, 3, 32, 32),),
    lambda: (_whole(2, 2, 3, 8, 8), _whole(2, 2, 3, 8, 8)),
    lambda: (_whole(3, 2, 8, 8), _whole(3, 2, 8, 8)),
    lambda: (_float(2, 100), _float(2, 100)),
    lambda: (_float(2, 2, 100), _float(2, 2, 100)),
    lambda: (_float(2, 8, 5), _whole(5, 2, 8)),
    lambda: (_float(4, 10, 2), _float(4, 10, 2)),
    lambda: (["the cat sat on the mat"], ["a cat sat on the mat"]),
    lambda: (["the cat sat on the mat"], [["a cat sat on the mat", "there was a cat"]]),
    lambda: (_panes(), _panes()),
    lambda: ({"one": _float(8)}, {"one": _float(8)}),
    lambda: (_float(2, 1, 32, 32), _float(2, 1, 32, 32)),
    lambda: (_float(2, 3, 32, 32), {"ms": _float(2, 3, 16, 16), "pan": _float(2, 3, 32, 32)}),
    lambda: (_boxes(), _boxes()),
    lambda: (
        [{"prediction_text": "1976", "id": f"{int(_whole(9, 1))}"}],
        [{"answers": {"answer_start": [97], "text": ["1976"]}, "id": "5"}],
    ),
)
_CLASSES: tuple[tuple[str, int], ...] = (("Binary", 0), ("Multiclass", 1), ("Multilabel", 2))
_ELSEWHERE = {
    "BERTScore",
    "CLIPImageQualityAssessment",
    "CLIPScore",
    "DeepImageStructureAndTextureSimilarity",
    "InfoLM",
    "LearnedPerceptualImagePatchSimilarity",
    "PerceptualPathLength",
}
"""They compute with models that they download."""
_WRAPPED: dict[str, Callable[[], Any]] = {
    "BootStrapper": lambda: package.BootStrapper(package.MeanSquaredError(), num_bootstraps=3),
    "ClasswiseWrapper": lambda: package.ClasswiseWrapper(
        package.classification.MulticlassAccuracy(num_classes=3, average=None)
    ),
    "MinMaxMetric": lambda: package.MinMaxMetric(package.classification.BinaryAccuracy()),
    "MultioutputWrapper": lambda: package.MultioutputWrapper(package.R2Score(), num_outputs=2),
    "Running": lambda: package.wrappers.Running(package.SumMetric(), window=2),
    "MetricCollection": lambda: package.MetricCollection(
        [package.classification.BinaryAccuracy(), package.classification.BinaryPrecision()]
    ),
    "MetricTracker": lambda: _tracker(),
    "CompositionalMetric": lambda: package.MeanSquaredError() + package.MeanAbsoluteError(),
    "PermutationInvariantTraining": lambda: package.audio.PermutationInvariantTraining(
        package.functional.audio.scale_invariant_signal_noise_ratio
    ),
    "LambdaInputTransformer": lambda: package.wrappers.LambdaInputTransformer(
        package.MeanSquaredError(), lambda x: x * 2
    ),
    "BinaryTargetTransformer": lambda: package.wrappers.BinaryTargetTransformer(
        package.classification.BinaryAccuracy(), threshold=0.5
    ),
    "PanopticQuality": lambda: package.detection.PanopticQuality(things={0, 1}, stuffs={6, 7}),
    "MultitaskWrapper": lambda: package.MultitaskWrapper({"one": package.MeanSquaredError()}),
    "ModifiedPanopticQuality": lambda: package.detection.ModifiedPanopticQuality(things={0, 1}, stuffs={6, 7}),
}


def _tracker() -> Any:
    tracker = package.wrappers.MetricTracker(package.MeanSquaredError())
    tracker.increment()
    return tracker


def names() -> Iterable[str]:
    """Classes of all areas, by their names."""
    found = set(_WRAPPED)
    for module in (package, *(getattr(package, area) for area in _AREAS)):
        found |= {
            name
            for name, kind in vars(module).items()
            if inspect.isclass(kind) and issubclass(kind, package.Metric) and name not in _BASES - set(_WRAPPED)
        }
    return sorted(found, key=str.lower)


def make(name: str, seed: int) -> Specimen:
    """A metric."""
    if name in _ELSEWHERE:
        raise UntriedError("it computes with a model that it downloads")
    return Metric(name, seed)


class Metric(StateDict):
    """A metric whose states were all made persistent, so that its ``state_dict`` has them."""

    def __init__(self, name: str, seed: int) -> None:
        start(seed)
        self.metric = _make(name)
        if not isinstance(self.metric, package.wrappers.MetricTracker):
            self.metric.persistent(True)
        else:
            for each in self.metric:
                each.persistent(True)
        self.inputs = self._inputs(name, self.metric)
        self.parts = {"metric": self.metric}

    def _inputs(self, name: str, metric: Any) -> Callable[[], tuple[Any, ...]]:
        """The first arguments that it takes."""
        first = [_INPUTS[number] for prefix, number in _CLASSES if name.startswith(prefix)]
        refused = ""
        for inputs in (*first, *_INPUTS):
            probe = _make(name)
            try:
                probe.update(*inputs())
                probe.compute()
                return inputs
            except Exception as error:
                refused = f"{type(error).__name__}: {error}"
        raise UntriedError(f"no arguments for it are known: {refused}")

    def use(self, step: int) -> Any:
        torch.manual_seed(100 + step)
        self.metric.update(*self.inputs())
        return self.metric.compute()


def _make(name: str) -> Any:
    if name in _WRAPPED:
        return _WRAPPED[name]()
    kind = next(
        getattr(module, name)
        for module in (package, *(getattr(package, area) for area in _AREAS))
        if hasattr(module, name)
    )
    if "task" in inspect.signature(kind.__new__).parameters:
        wanted = inspect.signature(kind.__new__).parameters
        task = "multiclass" if name == "ExactMatch" else "binary"
        return kind(task=task, num_classes=3, **{key: 0.5 for key in wanted if key.startswith("min_")})
    wanted = inspect.signature(kind.__init__).parameters
    needed = [key for key, each in wanted.items() if each.default is inspect.Parameter.empty and key in _COMMON]
    return kind(**{key: _COMMON[key] for key in needed})
