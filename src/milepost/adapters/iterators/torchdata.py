"""Loaders of torchdata: `StatefulDataLoader`, and the ``Loader`` of a graph of nodes."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from milepost.adapters.iterators.any_library import StatefulAdapter, is_of
from milepost.adapters.iterators.pytorch import is_loader
from milepost.errors import MismatchError
from milepost.graph.adapter import register

_GENERATOR: Final = "generator"
"""Name of the generator's state in a saved one, beside the loader's own names."""
_NEXT: Final = ("next_iter_state", "_next_iter_state_dict")
"""Where loaders keep a loaded state until the next iterator takes it."""


class TorchdataAdapter(StatefulAdapter):
    """Loaders, and nodes of which graphs consist."""

    def methods(self, kind: type) -> tuple[str, str] | None:
        found = super().methods(kind)
        if found is None and any(
            base.__name__ == "BaseNode" and is_of(base, "torchdata.nodes") for base in kind.__mro__
        ):
            return "state_dict", "reset"
        return found

    def handles(self, kind: type) -> bool:
        return is_of(kind, "torchdata.") and super().handles(kind)

    def state(self, obj: Any) -> Any:
        attributes = getattr(obj, "__dict__", {})
        for name in _NEXT:
            if attributes.get(name) is not None:  # no iterator has taken it yet, so the loader would not tell it
                return attributes[name]
        return _with_generator(obj, super().state(obj))

    def load(self, obj: Any, state: Any) -> None:
        _must_match_workers(obj, state)
        super().load(obj, state)
        _keep_randomness(obj)

    def before_assign(self, obj: Any) -> Callable[[], object]:
        attributes = getattr(obj, "__dict__", {})
        if not any(name in attributes for name in _NEXT):
            return super().before_assign(obj)
        # A state is only noted for the next iterator, and asking for one would start an iterator.
        before = dict(attributes)

        def undo() -> None:
            attributes.clear()
            attributes.update(before)

        return undo


def is_of_torchdata(obj: Any) -> bool:
    """Whether it is a loader of torchdata."""
    return is_of(type(obj), "torchdata.")


def is_graph_of_nodes(obj: Any) -> bool:
    """Whether it is the ``Loader`` of a graph of torchdata's nodes, whose samplers tell no state of their generators."""
    return any(base.__module__.startswith("torchdata.nodes") for base in type(obj).__mro__)


def counts_twice(obj: Any) -> bool:
    """Whether this is a loader of a data set that is iterated and has no state.

    Once restored, torchdata's counts the batches that it passed over a second time.
    """
    if not is_loader(obj):
        return False
    names = {base.__name__ for base in type(obj.dataset).__mro__ if base.__module__.startswith(("torch.", "datasets."))}
    return "IterableDataset" in names and not hasattr(obj.dataset, "state_dict")


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


def _must_match_workers(obj: Any, state: Any) -> None:
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


def _keep_randomness(obj: Any) -> None:
    """Lets a restored loader make its next iterator without drawing from random generators.

    Each iterator begins with a draw for the seed of its workers. The one that is continued has drawn before it was
    saved, and with another draw, all that comes later would be other than in a run that went on.
    """
    attributes = getattr(obj, "__dict__", {})
    if attributes.get("next_iter_state") is not None and callable(getattr(obj, "_get_iterator", None)):
        # Into the dict itself, and as a method, which copies and pickles as the class's own.
        attributes["_get_iterator"] = types.MethodType(_get_iterator, obj)


def _with_generator(obj: Any, state: Any) -> Any:
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


register(TorchdataAdapter())
