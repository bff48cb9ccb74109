"""Private names of Lightning that milepost uses, with their purpose. Tested with Lightning 2.6.

Lightning is the package ``lightning``, or ``pytorch_lightning``: the one that the program has imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "loops": {
        "_combined_loader": "the loaders that a loop reads together",
        "_data_fetcher": "reads batches ahead",
        "_restarting": "whether a loop continues one that was saved",
        "_resuming_from_checkpoint": "whether the iterators are not to be made",
        "_results": "what was logged in the epoch",
    },
    "pytorch_lightning.utilities.combined_loader.CombinedLoader": {
        "_iterator": "reads the loaders, if it was made",
        "_consumed": "which loaders have ended once",
        "_idx": "how many batches were read",
    },
    "pytorch_lightning.trainer.connectors.logger_connector": {
        "_logger_connector": "that of a trainer",
        "_first_loop_iter": "whether metrics are to be reset before the next batch",
        "_Metadata": "what is known of a logged value",
        "_Sync": "how it is reduced over processes",
        "_ResultMetric": "a logged value",
        "_forward_cache": "its last value",
        "_defaults": "the names of its sums",
        "_update_count": "how often it was logged",
    },
    "pytorch_lightning.callbacks.StochasticWeightAveraging": {
        "_latest_update_epoch": "the epoch in which it averaged last",
        "_scheduler_state": "that of the scheduler which it has made",
    },
}
"""Attributes that the modules of this package use, by the class that has them."""


def package() -> Any:
    """The module ``lightning.pytorch``, or ``pytorch_lightning`` if the program has imported that only."""
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        return importlib.import_module("pytorch_lightning")
    try:
        return importlib.import_module("lightning.pytorch")
    except ModuleNotFoundError as error:
        if error.name != "lightning":
            raise
        return importlib.import_module("pytorch_lightning")


def torch_io() -> Any:
    """Lightning's own plugin for files, of ``torch.save``."""
    return importlib.import_module(f"{package().__name__}.plugins.io").TorchCheckpointIO()


def load_by_torch(path: str, map_location: Any, weights_only: bool | None) -> Any:
    """Loads a file of ``torch.save``. Before Lightning 2.6, the plugin has no ``weights_only``."""
    return torch_io().load_checkpoint(path, map_location, *(() if weights_only is None else (weights_only,)))


def dumped(trainer: Any) -> dict[str, Any]:
    """The dict that Lightning itself would save."""
    checkpoint: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    return checkpoint


def give(trainer: Any, checkpoint: dict[str, Any]) -> None:
    """Makes the run that begins use this dict, as if it had been read from ``ckpt_path``. A given ``ckpt_path`` takes precedence."""
    trainer._checkpoint_connector._loaded_checkpoint = checkpoint


def without_loaders(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The dict without the states of training loaders, which milepost saves by itself."""
    loops = dict(checkpoint["loops"])
    fit_loop = dict(loops["fit_loop"])
    loop_state = {name: value for name, value in fit_loop.get("state_dict", {}).items() if name != "combined_loader"}
    return {**checkpoint, "loops": {**loops, "fit_loop": {**fit_loop, "state_dict": loop_state}}}


def epoch_ends(trainer: Any) -> bool:
    """Whether no batch of the epoch follows: because of its length, of a limit, or of a callback."""
    return bool(trainer.fit_loop.epoch_loop.done)


def progress(trainer: Any) -> dict[str, Any]:
    """What hooks set when the epoch begins, and the number of steps for loggers."""
    return {
        "accumulate": trainer.accumulate_grad_batches,
        "logged_steps": trainer.fit_loop.epoch_loop._batches_that_stepped,
    }


def set_progress(trainer: Any, progress: Mapping[str, Any]) -> None:
    """Restores what `progress` returned, in an epoch that continues."""
    if progress:
        trainer.accumulate_grad_batches = progress["accumulate"]
        trainer.fit_loop.epoch_loop._batches_that_stepped = progress["logged_steps"]


def is_trial(callback: Any) -> bool:
    """Whether a callback is that with which a ``Tuner`` searches, after which no training follows."""
    return bool(getattr(callback, "_early_exit", False))


def is_accumulating(trainer: Any) -> bool:
    """Whether gradients were accumulated that the optimizer has not used yet, or may have been."""
    module = trainer.lightning_module
    return not module.automatic_optimization or bool(trainer.fit_loop._should_accumulate())


def metric_states(module: Any) -> dict[str, Any]:
    """The states of all metrics of torchmetrics in a module, which its ``state_dict`` leaves out."""
    return {
        name: {"state": dict(each.metric_state), "updates": each._update_count}
        for name, each in module.named_modules()
        if _is_metric(each)
    }


def set_metric_states(module: Any, states: Mapping[str, Any]) -> None:
    """Restores what `metric_states` returned, in the metrics that are still there."""
    for name, metric in module.named_modules():
        if _is_metric(metric) and name in states:
            for attribute, value in states[name]["state"].items():
                moved = (
                    [part.to(metric.device) for part in value] if isinstance(value, list) else value.to(metric.device)
                )
                setattr(metric, attribute, moved)
            metric._update_count = states[name]["updates"]
            metric._computed = None


def _is_metric(module: Any) -> bool:
    return any(
        base.__name__ == "Metric" and base.__module__.startswith("torchmetrics.") for base in type(module).__mro__
    )


def load_by(read: Callable[[Any, Any], dict[str, Any] | None]) -> None:
    """Makes ``load_from_checkpoint()`` ask a function first, which returns None for files that are not its own.

    Args:
        read: Takes the path and ``map_location``.
    """
    saving: Any = importlib.import_module(f"{package().__name__}.core.saving")
    original = saving.pl_load

    def load(path: Any, map_location: Any = None, weights_only: bool | None = None) -> Any:
        checkpoint = read(path, map_location)
        if checkpoint is not None:
            return checkpoint
        return original(path, map_location, *(() if weights_only is None else (weights_only,)))

    saving.pl_load = load
