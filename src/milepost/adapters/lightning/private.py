"""Every private name of Lightning that milepost uses, with its purpose. Tested with Lightning 2.6.

Lightning is the package ``lightning``, or ``pytorch_lightning``: the one that the program has imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


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


def was_validated(trainer: Any) -> bool:
    """Whether the model was validated in the epoch that ends."""
    return bool(trainer.fit_loop.epoch_loop.val_loop._has_run)


def without_loaders(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The dict without the states of training loaders, which milepost saves by itself."""
    loops = dict(checkpoint["loops"])
    fit_loop = dict(loops["fit_loop"])
    loop_state = {name: value for name, value in fit_loop.get("state_dict", {}).items() if name != "combined_loader"}
    return {**checkpoint, "loops": {**loops, "fit_loop": {**fit_loop, "state_dict": loop_state}}}


def when_loaders_are_made(trainer: Any, function: Callable[[list[Any]], None]) -> Callable[[], None]:
    """Calls a function with the training loaders each time before Lightning makes iterators of new ones.

    Returns:
        A function that ends this.
    """
    loop = trainer.fit_loop
    method = type(loop)._load_combined_loader_states

    def load() -> None:
        method(loop)
        function(loop._combined_loader.flattened)

    vars(loop)["_load_combined_loader_states"] = load
    return lambda: vars(loop).pop("_load_combined_loader_states", None)


def batches_ahead(trainer: Any) -> int:
    """How many batches were read and are not trained yet."""
    return len(getattr(trainer.fit_loop._data_fetcher, "batches", ()))


def is_accumulating(trainer: Any) -> bool:
    """Whether gradients were accumulated that the optimizer has not used yet, or may have been."""
    module = trainer.lightning_module
    return not module.automatic_optimization or bool(trainer.fit_loop._should_accumulate())


def has_gone_on(trainer: Any) -> None:
    """Makes the first epoch end like every other one. Lightning would not step the schedulers that depend on a metric."""
    trainer.fit_loop._restarting = False


def is_last_batch(trainer: Any) -> bool:
    """Whether the batch that was just trained is the last of its epoch."""
    loop = trainer.fit_loop.epoch_loop
    return bool(loop.batch_progress.is_last_batch or loop._num_ready_batches_reached())


def validates_now(trainer: Any) -> bool:
    """Whether validation follows the batch that was just trained."""
    loop = trainer.fit_loop
    return bool(loop.epoch_loop._should_check_val_fx(loop._data_fetcher))


def end_without_validation(trainer: Any) -> None:
    """Keeps Lightning from validating in the middle of an epoch because the run ends there."""
    trainer.fit_loop.epoch_loop._skip_next_val = True


def logged_state(trainer: Any) -> dict[str, Any]:
    """What ``self.log(..., on_epoch=True)`` has accumulated in this epoch."""
    state = {}
    for key, metric in trainer.fit_loop.epoch_loop._results.items():
        if metric.is_tensor and metric.meta.on_epoch and not metric.has_reset:
            state[key] = {name: getattr(metric, name) for name in metric._defaults}
    return state


def begin_epoch(trainer: Any) -> None:
    """Resets the counters of the epoch, which Lightning does itself later in the epoch's beginning."""
    loop = trainer.fit_loop.epoch_loop
    for progress in (loop.batch_progress, loop.scheduler_progress, loop.automatic_optimization.optim_progress):
        progress.reset_on_run()
    loop.val_loop.batch_progress.total.reset()


def add_logged(trainer: Any, pending: dict[str, dict[str, Any]]) -> None:
    """Adds what was accumulated before to values that are logged again, and removes these from ``pending``."""
    results = trainer.fit_loop.epoch_loop._results
    for key in [key for key in pending if key in results]:
        metric, saved = results[key], pending.pop(key)
        for name, value in saved.items():
            now = getattr(metric, name)
            before = value.to(now.device)
            is_extreme = metric.meta.is_max_reduction or metric.meta.is_min_reduction
            setattr(metric, name, metric.meta.reduce_fx(before, now) if is_extreme else before + now)
        metric._computed = None


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
