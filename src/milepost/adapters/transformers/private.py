"""Every private name of transformers that milepost uses, with its purpose. Tested with transformers 5.23.

The mixin in `milepost.trainers.transformers` overrides these methods of ``Trainer``: ``_maybe_log_save_evaluate``, which is called
after each step and each epoch, and ``_load_from_checkpoint``, ``_load_optimizer_and_scheduler``, ``_load_scaler``,
``_load_rng_state`` and ``_load_callback_state``, by which ``train()`` resumes. ``_init_training_state`` returns the pass over the data and the
batch at which it does. ``_load_best_model`` is called for a run that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def with_state(callbacks: Iterable[Any]) -> list[Any]:
    """The callbacks that have a state, such as early stopping."""
    return [callback for callback in callbacks if isinstance(callback, ExportableState)]


def state_from(path: str) -> Any:
    """The state of a trainer in a file."""
    return TrainerState.load_from_json(path)
