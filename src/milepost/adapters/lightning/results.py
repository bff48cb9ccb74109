"""What ``self.log()`` has gathered in an epoch, and the metrics that callbacks and loggers see."""

from __future__ import annotations

import importlib
from typing import Any, Final

from milepost.adapters.lightning.private import package
from milepost.errors import warn

_FIELDS: Final = (
    "fx",
    "name",
    "prog_bar",
    "logger",
    "on_step",
    "on_epoch",
    "enable_graph",
    "add_dataloader_idx",
    "dataloader_idx",
    "metric_attribute",
)
"""What is known of a logged value, except how it is reduced."""
_SHOWN: Final = ("_callback_metrics", "_logged_metrics", "_progress_bar_metrics")


def results(trainer: Any) -> dict[str, Any]:
    """The values that were logged in this epoch, each with its sums."""
    logged = {key: metric for key, metric in trainer.fit_loop.epoch_loop._results.items() if not metric.has_reset}
    grouped = [metric.meta.name for metric in logged.values() if metric.meta.sync.group is not None]
    if grouped:
        warn(
            f"values that are logged with sync_dist_group are not saved, and a resumed epoch averages them anew: {grouped}"
        )
    return {key: _saved(metric) for key, metric in logged.items() if metric.meta.sync.group is None}


def set_results(trainer: Any, states: dict[str, Any]) -> None:
    """Restores what `results` returned, for the batches that follow in the same epoch."""
    module: Any = importlib.import_module(f"{package().__name__}.trainer.connectors.logger_connector.result")
    logged = trainer.fit_loop.epoch_loop._results
    for key, state in states.items():
        if "fields" in state:  # earlier versions of milepost saved the sums only
            logged[key] = _made(module, trainer, state)
    trainer._logger_connector._first_loop_iter = False


def shown_metrics(trainer: Any) -> dict[str, Any]:
    """``trainer.callback_metrics`` and what loggers and the progress bar show."""
    return {name: dict(getattr(trainer._logger_connector, name)) for name in _SHOWN}


def show_metrics(trainer: Any, metrics: dict[str, Any]) -> None:
    """Restores what `shown_metrics` returned."""
    for name, values in metrics.items():
        setattr(trainer._logger_connector, name, dict(values))


def _saved(metric: Any) -> dict[str, Any]:
    meta = metric.meta
    state = {
        "fields": {name: getattr(meta, name) for name in _FIELDS},
        "reduce": meta.reduce_fx.__name__,
        "sync": meta.sync.should,
        "first_only": meta.sync.rank_zero_only,
        "last": metric._forward_cache,
    }
    return {**state, "sums": {name: getattr(metric, name) for name in metric._defaults} if metric.is_tensor else None}


def _made(module: Any, trainer: Any, state: dict[str, Any]) -> Any:
    meta = module._Metadata(**state["fields"], reduce_fx=state["reduce"])
    meta.sync = module._Sync(
        _should=state["sync"], fn=trainer.strategy.reduce, _group=None, rank_zero_only=state["first_only"]
    )
    metric = module._ResultMetric(meta, state["sums"] is not None)
    if state["sums"] is None:
        metric.value = trainer.lightning_module.get_submodule(meta.metric_attribute)
    else:
        for name, value in state["sums"].items():
            setattr(metric, name, value)
    metric._forward_cache = state["last"]
    metric._update_count = 1
    return metric.to(trainer.lightning_module.device)
