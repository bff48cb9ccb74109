"""``StochasticWeightAveraging``, which sets itself up when an epoch begins, and so not in an epoch that continues."""

from __future__ import annotations

from typing import Any

from milepost.adapters.lightning.loaders import in_epoch
from milepost.adapters.lightning.private import package


def set_up_averaging(trainer: Any, *, within: bool) -> None:
    """Sets up all such callbacks as they were when the run was saved.

    Args:
        trainer: The trainer, with the saved state of the callbacks, the model and the optimizers.
        within: Whether the run continues in the middle of an epoch.
    """
    for callback in trainer.callbacks:
        if isinstance(callback, package().callbacks.StochasticWeightAveraging) and callback._scheduler_state:
            _set_up(callback, trainer, within)


def _set_up(callback: Any, trainer: Any, within: bool) -> None:
    groups = trainer.optimizers[0].param_groups
    settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    with in_epoch(trainer, callback._latest_update_epoch):  # in which it does not average
        callback.on_train_epoch_start(trainer, trainer.lightning_module)
    for group, saved in zip(groups, settings, strict=True):
        group.update(saved)  # its scheduler has set the rates of its first step
    is_in_last = trainer.current_epoch == callback.swa_end + 1
    if within and is_in_last:  # the additional epoch, for the statistics of the normalization, which it resets
        module = trainer.lightning_module
        state = {name: value.clone() for name, value in module.state_dict().items()}
        callback.on_train_epoch_start(trainer, module)
        module.load_state_dict(state)
