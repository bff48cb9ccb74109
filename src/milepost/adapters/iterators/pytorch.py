"""PyTorch's own loaders, which have no state."""

from __future__ import annotations

from typing import Any


def is_loader(obj: Any) -> bool:
    """Whether it is a ``DataLoader`` of PyTorch, or of a class derived from it."""
    return any(base.__name__ == "DataLoader" and base.__module__.startswith("torch.") for base in type(obj).__mro__)


def stop_workers(obj: Any) -> None:
    """Lets the next iterator of a loader start workers of its own, as if they were not to persist.

    What workers remember from one pass to the next, random generators above all, cannot be saved.
    """
    if is_loader(obj) and obj.persistent_workers:
        vars(obj)["persistent_workers"] = False  # the loader itself does not allow it
        vars(obj)["_iterator"] = None
