"""Every private name of Accelerate that milepost uses, with its purpose. Tested with Accelerate 1.15."""

from __future__ import annotations

from typing import Any


def prepared(accelerator: Any) -> dict[str, list[Any]]:
    """What ``accelerator.save_state()`` would save: all that was prepared or registered, by kind."""
    return {
        "models": list(accelerator._models),
        "optimizers": list(accelerator._optimizers),
        "schedulers": list(accelerator._schedulers),
        "loaders": list(accelerator._dataloaders),
        "registered": list(accelerator._custom_objects),
    }


def is_being_read(loader: Any) -> bool:
    """Whether a prepared loader is in the middle of a pass."""
    references = loader.gradient_state.dataloader_references
    return any(each is loader for each in references)
