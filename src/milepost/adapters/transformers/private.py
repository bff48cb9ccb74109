"""Every private name of transformers that milepost uses, with its purpose. Tested with transformers 5.23.

The mixin in `milepost.trainers.transformers` overrides these methods of ``Trainer``: ``_maybe_log_save_evaluate``, which is called
after each step and each epoch, and ``_load_from_checkpoint``, ``_load_optimizer_and_scheduler``, ``_load_scaler``,
``_load_rng_state`` and ``_load_callback_state``, by which ``train()`` resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformers.trainer as _trainer
from transformers.trainer_callback import ExportableState, TrainerState

STATE_FILE: str = _trainer.TRAINER_STATE_NAME
"""The name of the file of the trainer's own state, without which ``train()`` resumes nothing."""

LOSSES = ("_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step", "current_flos")
"""Attributes of a ``Trainer`` with numbers that its logs are computed from, in addition to ``_tr_loss``."""


def skip_by(skips_itself: Callable[[Any], bool]) -> None:
    """Keeps ``Trainer`` from making another loader that skips batches, if the loader returns to its position by itself."""
    original = _trainer.skip_first_batches

    def skip(loader: Any, num_batches: int = 0) -> Any:
        return loader if skips_itself(loader) else original(loader, num_batches)

    _trainer.skip_first_batches = skip


def callback_states(trainer: Any) -> dict[str, list[dict[str, Any]]]:
    """The states of callbacks that have one, such as early stopping."""
    states: dict[str, list[dict[str, Any]]] = {}
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExportableState):
            states.setdefault(type(callback).__name__, []).append(callback.state().get("attributes", {}))
    return states


def set_callback_states(trainer: Any, states: dict[str, list[dict[str, Any]]]) -> None:
    """Restores what `callback_states` returned, in the callbacks themselves."""
    left = {name: list(each) for name, each in states.items()}
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ExportableState) and left.get(type(callback).__name__):
            for name, value in left[type(callback).__name__].pop(0).items():
                setattr(callback, name, value)


def state_from(path: str) -> Any:
    """The state of a trainer in a file."""
    return TrainerState.load_from_json(path)
