"""Every private name of Accelerate that milepost uses, with its purpose. Tested with Accelerate 1.15."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

_REPORT: Final = "_milepost_pass"
"""The attribute of a prepared loader that is told of each iterator."""


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


def report_passes(loader: Any, report: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    """Passes each iterator that a prepared loader makes to a function, whose result the loop gets.

    The iterators are generators, which do nothing until a batch is requested. So a loader itself does not see one that is dropped before.
    """
    if _REPORT not in vars(loader):
        kind = type(loader)
        members = {"__iter__": lambda self: vars(self)[_REPORT](kind.__iter__(self)), "__module__": kind.__module__}
        # Accelerate's own __class__ is a property that cannot be set.
        vars(object)["__class__"].__set__(loader, type(kind.__name__, (kind,), members))
    vars(loader)[_REPORT] = report
