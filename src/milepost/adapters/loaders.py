"""What torchdata's `StatefulDataLoader` does not do by itself when it is restored, and loaders of Accelerate without one."""

from __future__ import annotations

import random
import sys
import types
from typing import Any, Final

import numpy as np

from milepost.errors import MismatchError

_GENERATOR: Final = "generator"
"""Name of the generator's state in a saved one, beside the loader's own names."""


def remedy_for_loader(obj: Any) -> str:
    """What to do where Accelerate has prepared a loader that has no state; empty for all others."""
    if not any(base.__module__ == "accelerate.data_loader" for base in type(obj).__mro__):
        return ""
    return (
        "make the Accelerator with DataLoaderConfiguration(use_stateful_dataloader=True), which needs torchdata; or leave "
        "the loader out of the checkpoint, and skip the batches that were trained on with accelerate.skip_first_batches()"
    )


def must_match_workers(obj: Any, state: Any) -> None:
    """Refuses a state for another number of workers now, where the loader would do so at its next iterator.

    Raises:
        MismatchError: It was saved with another number.
    """
    if "next_iter_state" not in getattr(obj, "__dict__", {}) or not isinstance(state, dict) or not state:
        return
    snapshot = state.get("_snapshot", {})
    saved = snapshot.get("_main_snapshot", {}).get("_num_workers", 0)
    if saved != obj.num_workers:
        raise MismatchError(
            "this loader was saved with another number of workers; nothing was changed",
            expected=f"num_workers={obj.num_workers}",
            found=f"num_workers={saved}",
            remedy=f"make the loader with num_workers={saved}",
        )


def keep_randomness(obj: Any) -> None:
    """Lets a restored loader make its next iterator without drawing from random generators.

    Each iterator begins with a draw for the seed of its workers. The one that is continued has drawn before it was
    saved, and with another draw, all that comes later would be other than in a run that went on.
    """
    attributes = getattr(obj, "__dict__", {})
    if attributes.get("next_iter_state") is not None and callable(getattr(obj, "_get_iterator", None)):
        # Into the dict itself, and as a method, which copies and pickles as the class's own.
        attributes["_get_iterator"] = types.MethodType(_get_iterator, obj)


def with_generator(obj: Any, state: Any) -> Any:
    """Adds to a loader's state that of its generator, whose draws it does not repeat exactly by itself."""
    generator = getattr(obj, "generator", None)
    if "next_iter_state" not in getattr(obj, "__dict__", {}) or generator is None or not isinstance(state, dict):
        return state
    return {**state, _GENERATOR: generator.get_state()}


def is_loader(obj: Any) -> bool:
    """Whether it is a ``DataLoader`` of PyTorch, or of a class derived from it."""
    return any(base.__name__ == "DataLoader" and base.__module__.startswith("torch.") for base in type(obj).__mro__)


def is_of_torchdata(obj: Any) -> bool:
    """Whether it is a loader of torchdata: a `StatefulDataLoader`, or the ``Loader`` of a graph of nodes."""
    return any(base.__module__.startswith("torchdata.") for base in type(obj).__mro__)


def is_graph_of_nodes(obj: Any) -> bool:
    """Whether it is the ``Loader`` of a graph of torchdata's nodes, whose samplers tell no state of their generators."""
    return any(base.__module__.startswith("torchdata.nodes") for base in type(obj).__mro__)


def loses_its_place(obj: Any) -> bool:
    """Whether the state of this data, restored, does not lead to where it was.

    So it is with torchdata's loader of a data set that is iterated and has no state: once restored, it counts the batches
    that it passed over a second time. And with data sets of Hugging Face that shuffle in a buffer, which is not saved.
    """
    data = obj.dataset if is_loader(obj) else obj
    names = {base.__name__ for base in type(data).__mro__ if base.__module__.startswith(("torch.", "datasets."))}
    if "IterableDataset" in names and is_loader(obj) and not hasattr(data, "state_dict"):
        return True
    part = vars(data).get("_ex_iterable") if names and hasattr(data, "__dict__") else None
    while part is not None and type(part).__name__ != "BufferShuffledExamplesIterable":
        part = getattr(part, "ex_iterable", None)
    return part is not None


def stop_workers(obj: Any) -> None:
    """Lets the next iterator of a loader start workers of its own, as if they were not to persist.

    What workers remember from one pass to the next, random generators above all, cannot be saved.
    """
    if is_loader(obj) and obj.persistent_workers:
        vars(obj)["persistent_workers"] = False  # the loader itself does not allow it
        vars(obj)["_iterator"] = None


def start_afresh(obj: Any) -> bool:
    """Lets the next iterator of torchdata's loader be that of a new pass, if nothing in the loader keeps a place of its own.

    A finished iterator that is restored first would draw from the generators of its samplers once more.
    """
    parts = [getattr(obj, name, None) for name in ("dataset", "sampler", "batch_sampler")]
    if "next_iter_state" not in getattr(obj, "__dict__", {}) or any(hasattr(part, "state_dict") for part in parts):
        return False
    obj.load_state_dict({})
    obj.next_iter_state = None
    vars(obj).pop("_get_iterator", None)
    return True


def forget_start(obj: Any) -> None:
    """Lets the next iterator of a data set of Hugging Face begin at the beginning, and not where it was restored."""
    parts: list[Any] = [obj, *([obj.dataset] if is_loader(obj) else [])]
    for data in parts:
        if getattr(data, "__dict__", {}).get("_starting_state_dict") is not None:
            data.load_state_dict(None)


def _get_iterator(loader: Any) -> Any:
    vars(loader).pop("_get_iterator", None)
    torch = sys.modules["torch"]
    state = vars(loader)["next_iter_state"]
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        return loader._get_iterator()
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if loader.generator is not None and isinstance(state, dict) and _GENERATOR in state:
            loader.generator.set_state(state[_GENERATOR])
