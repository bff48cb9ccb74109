"""PyTorch's own loaders, which have no state."""

from __future__ import annotations

from typing import Any

from milepost.adapters.iterators.private import WORKERS


def is_loader(obj: Any) -> bool:
    """Whether an object is a ``DataLoader`` of PyTorch, or of a class derived from it."""
    return any(base.__name__ == "DataLoader" and base.__module__.startswith("torch.") for base in type(obj).__mro__)


def stop_workers(obj: Any) -> None:
    """Makes the next iterator of a loader start new workers, as if they were not persistent.

    The state that persistent workers keep from one pass to the next, such as their random generators, cannot be saved.
    """
    if is_loader(obj) and obj.persistent_workers:
        vars(obj)["persistent_workers"] = False  # the loader's own setter refuses this
        vars(obj)[WORKERS] = None
