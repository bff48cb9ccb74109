"""The metric that decides which epochs are the best, and the names in the logs of epochs, to find a misspelt one before training."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from milepost.errors import UnsupportedError, warn

_OWN_STEPS: Final = ("train_step", "compute_metrics", "get_metrics_result", "make_train_function", "metrics")
_UP: Final = ("acc", "auc", "precision", "recall", "f1", "fbeta", "fmeasure", "iou", "r2", "specificity", "sensitivity")
_DOWN: Final = ("loss", "error", "mse", "mae", "mape", "msle", "crossentropy", "divergence", "perplexity")


class BestValue:
    """Remembers the best value of a metric.

    Args:
        monitor: Name of the metric in the logs of an epoch, such as ``"val_loss"``.
        mode: ``"min"``, ``"max"``, or ``"auto"``, which decides by the metric and then by its name.

    Raises:
        ValueError: The mode is unknown.

    Example:
        >>> best = BestValue("val_accuracy", "auto")
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
        """Whether the logs of an epoch have a better value. If so, it is remembered.

        Args:
            logs: The values of metrics in this epoch.
            metrics: The metrics of the model. Some of them define whether higher or lower is better.

        Raises:
            UnsupportedError: The metric is not in the logs, or its name does not tell whether higher or lower is
                better.
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
        if value != value:  # NaN is never better
            return False
        if self.value is None or (value > self.value if up else value < self.value):
            self.value = value
            return True
        return False

    def is_up(self, metrics: Iterable[Any]) -> bool:
        """Whether a higher value is better.

        Args:
            metrics: The metrics of the model.

        Raises:
            UnsupportedError: The name of the metric does not tell.
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


class Monitor:
    """Checks that the monitored metric will be in the logs.

    Args:
        best: The metric, and which values of it are better.
        model: The model.
        given: The arguments of ``fit()``.
        others: The other callbacks, which may add values to the logs of an epoch.
    """

    def __init__(self, best: BestValue, model: Any, given: Mapping[str, Any], others: Iterable[Any]) -> None:
        self._best = best
        self._model = model
        self._has_validation = (
            not given or given.get("validation_data") is not None or bool(given.get("validation_split"))
        )
        self._others_add = any(_adds_to_logs(each) for each in others)
        self._names: list[str] | None = None
        self._is_checked = False

    def check_before_training(self, metrics: Iterable[Any]) -> None:
        """Raises an error for a name that will not be in the logs, if the names are already known."""
        names = _names_of_metrics(self._model)
        if names is not None:
            self._check(names, metrics, "nothing was trained")

    def check_after_step(self, logs: Mapping[str, Any] | None, metrics: Iterable[Any]) -> None:
        """Raises the error of `check` after the first step, when the names are known."""
        if not self._is_checked:
            self._check(list(logs or {}), metrics, "one step was trained, and nothing was saved")

    def is_improved_by(self, logs: dict[str, Any], metrics: Iterable[Any]) -> bool:
        """Whether an epoch is the best so far. Epochs without validation may not have the metric."""
        if self._best.monitor not in logs and self._best.monitor in (self._names or ()):
            return False
        return self._best.is_improved_by(logs, metrics)

    def _check(self, names: list[str], metrics: Iterable[Any], when: str) -> None:
        self._is_checked = True
        self._names = [*names, *(f"val_{name}" for name in names)] if self._has_validation else names
        monitor = self._best.monitor
        if monitor not in self._names:
            if monitor.startswith("val_") and self._has_validation and _is_the_programs(self._model, "test_step"):
                return
            near = difflib.get_close_matches(monitor, self._names, 1, 0.8)
            if not self._others_add:
                self._refuse(when)
            elif near:
                warn(f"the model has no metric {monitor!r}; unless another callback logs it, did you mean {near[0]!r}?")
        self._best.is_up(metrics)

    def _refuse(self, when: str) -> None:
        names, monitor = self._names or [], self._best.monitor
        near = difflib.get_close_matches(monitor, names, 1, 0.5)
        if monitor.removeprefix("val_") in names:
            remedy = "pass validation_data to fit()"
        else:
            remedy = f"monitor {near[0]!r}" if near else "monitor one of those, or compile the model with the metric"
        raise UnsupportedError(
            f"the logs of epochs will not have the monitored metric; {when}",
            expected=monitor,
            found=", ".join(sorted(names)) or "no metrics",
            remedy=remedy,
        )


def _names_of_metrics(model: Any) -> list[str] | None:
    """The names under which the metrics of a model are logged, or None if they are known only after a step."""
    if any(_is_the_programs(model, name) for name in _OWN_STEPS):
        return None
    parts = [getattr(model, name, None) for name in ("_compile_metrics", "compiled_metrics", "compiled_loss")]
    if any(part is not None and getattr(part, "built", True) is False for part in parts):
        return None
    try:
        return list(model.get_metrics_result()) or None
    except Exception:  # of metrics that are not made yet
        return None


def _adds_to_logs(callback: Any) -> bool:
    """Whether a callback may add values to the logs of an epoch."""
    if type(callback).__name__ == "LambdaCallback":
        return "on_epoch_end" in vars(callback)
    return any(_is_the_programs(callback, name) for name in ("on_epoch_end", "on_test_end"))


def _is_the_programs(instance: Any, name: str) -> bool:
    """Whether the program overrides a method of Keras."""
    owner = next((base for base in type(instance).__mro__ if name in vars(base)), None)
    if name in getattr(instance, "__dict__", {}):
        return True
    libraries = ("keras", "tf_keras", "tensorflow", "milepost")
    return owner is not None and owner.__module__.partition(".")[0] not in libraries
