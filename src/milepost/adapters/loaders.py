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
