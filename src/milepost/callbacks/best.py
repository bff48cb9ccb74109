"""Which of two values of a metric is better."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from milepost.errors import UnsupportedError

_UP: Final = ("acc", "auc", "precision", "recall", "f1", "fbeta", "fmeasure", "iou", "r2", "specificity", "sensitivity")
_DOWN: Final = ("loss", "error", "mse", "mae", "mape", "msle", "crossentropy", "divergence", "perplexity")


class Best:
    """Remembers the best value of a metric.

    Args:
        monitor: Name of the metric in the logs of an epoch, such as ``"val_loss"``.
        mode: ``"min"``, ``"max"``, or ``"auto"``, which asks the metric and then its name.

    Raises:
        ValueError: Another mode.

    Example:
        >>> best = Best("val_accuracy", "auto")
        >>> [best.is_improved_by({"val_accuracy": value}) for value in (0.5, 0.7, 0.6)]
        [True, True, False]
    """

    def __init__(self, monitor: str, mode: str = "auto") -> None:
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode must be 'auto', 'min' or 'max', not {mode!r}")
        self.monitor = monitor
        self.mode = mode
        self.value: float | None = None

    def is_improved_by(self, logs: dict[str, Any], metrics: Iterable[Any] = ()) -> bool:
        """Whether an epoch's logs have a better value, which is remembered then.

        Args:
            logs: What the epoch's metrics came to.
            metrics: The model's metrics, some of which know in which direction they are better.

        Raises:
            UnsupportedError: The metric is not in the logs, or its mode cannot be told from its name.
        """
        if self.monitor not in logs:
            raise UnsupportedError(
                "the logs of this epoch do not have the monitored metric",
                expected=self.monitor,
                found=", ".join(sorted(logs)) or "no metrics",
                remedy="monitor one of those, compile the model with the metric, or pass validation_data to fit()",
            )
        value = float(logs[self.monitor])
        up = self.is_up(metrics)
        if value != value:  # NaN is no better than anything
            return False
        if self.value is None or (value > self.value if up else value < self.value):
            self.value = value
            return True
        return False

    def is_up(self, metrics: Iterable[Any]) -> bool:
        """Whether more is better.

        Args:
            metrics: The model's metrics.

        Raises:
            UnsupportedError: It cannot be told from the metric's name.
        """
        if self.mode != "auto":
            return self.mode == "max"
        name = self.monitor.removeprefix("val_")
        for metric in metrics:
            if getattr(metric, "name", None) == name and getattr(metric, "_direction", None) in ("up", "down"):
                return bool(metric._direction == "up")
        lowered = name.lower()
        if any(word in lowered for word in _DOWN):
            return False
        if any(word in lowered for word in _UP):
            return True
        raise UnsupportedError(
            "the name of this metric does not tell whether higher or lower is better",
            expected="mode='min' or mode='max'",
            found=f"monitor={self.monitor!r}, mode='auto'",
            remedy="pass mode='min' or mode='max'",
        )
