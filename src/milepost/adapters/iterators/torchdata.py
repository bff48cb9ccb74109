"""Loaders of torchdata: `StatefulDataLoader`, and the ``Loader`` of a graph of nodes."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from milepost.adapters.iterators.any_library import StatefulAdapter, is_of
from milepost.adapters.iterators.private import COUNT, MADE, NEXT
from milepost.adapters.iterators.pytorch import is_loader
from milepost.errors import MismatchError
from milepost.graph.adapter import register

_GENERATOR: Final = "generator"
"""The name of the generator's state in a saved state, in addition to the loader's own names."""


class TorchdataAdapter(StatefulAdapter):
    """Loaders, and the nodes of graphs."""

    def methods(self, kind: type) -> tuple[str, str] | None:
        names = super().methods(kind)
        if names is None and any(
            base.__name__ == "BaseNode" and is_of(base, "torchdata.nodes") for base in kind.__mro__
        ):
            return "state_dict", "reset"
        return names

    def handles(self, kind: type) -> bool:
        return is_of(kind, "torchdata.") and super().handles(kind)

    def state(self, obj: Any) -> Any:
        attributes = getattr(obj, "__dict__", {})
        for name in NEXT:
            if attributes.get(name) is not None:  # no iterator has taken it yet, so state_dict() would lack it
                return attributes[name]
        return _with_generator(obj, super().state(obj))

    def load(self, obj: Any, state: Any) -> None:
        _must_match_workers(obj, state)
        super().load(obj, state)
        _keep_randomness(obj)

    def before_assign(self, obj: Any) -> Callable[[], object]:
        attributes = getattr(obj, "__dict__", {})
        if not any(name in attributes for name in NEXT):
            return super().before_assign(obj)
        # Loading only notes a state for the next iterator, and asking for the state would start an iterator.
        before = dict(attributes)

        def undo() -> None:
            attributes.clear()
            attributes.update(before)

        return undo


def is_of_torchdata(obj: Any) -> bool:
    """Whether an object is a loader of torchdata."""
    return is_of(type(obj), "torchdata.")


def is_graph_of_nodes(obj: Any) -> bool:
    """Whether an object is the ``Loader`` of a graph of torchdata's nodes. Its samplers do not save their generators."""
    return is_of(type(obj), "torchdata.nodes")


def counts_twice(obj: Any) -> bool:
    """Whether an object is a loader of an iterable data set that has no state.

    A restored loader of torchdata counts the batches that it skips there a second time.
    """
    if not is_loader(obj):
        return False
    names = {base.__name__ for base in type(obj.dataset).__mro__ if base.__module__.startswith(("torch.", "datasets."))}
    return "IterableDataset" in names and not hasattr(obj.dataset, "state_dict")


def start_afresh(obj: Any) -> bool:
    """Makes the next iterator of torchdata's loader start a new pass, if nothing in the loader keeps a position of its own.

    Otherwise the finished iterator would be restored first, and would draw from the generators of its samplers once more.

    Returns:
        Whether the next iterator starts a new pass.
    """
    parts = [getattr(obj, name, None) for name in ("dataset", "sampler", "batch_sampler")]
    if "next_iter_state" not in getattr(obj, "__dict__", {}) or any(hasattr(part, "state_dict") for part in parts):
        return False
    obj.load_state_dict({})
    obj.next_iter_state = None
    vars(obj).pop(MADE, None)
    return True


def _must_match_workers(obj: Any, state: Any) -> None:
    """Checks the number of workers now. The loader itself would check it when it makes its next iterator.

    Raises:
        MismatchError: The state was saved with another number of workers.
    """
    if "next_iter_state" not in getattr(obj, "__dict__", {}) or not isinstance(state, dict) or not state:
        return
    snapshot, main, number = COUNT
    saved = state.get(snapshot, {}).get(main, {}).get(number, 0)
    if saved != obj.num_workers:
        raise MismatchError(
            "this loader was saved with a different number of workers; nothing was changed",
            expected=f"num_workers={obj.num_workers}",
            found=f"num_workers={saved}",
            remedy=f"make the loader with num_workers={saved}",
        )


def _keep_randomness(obj: Any) -> None:
    """Makes a restored loader create its next iterator without drawing from random generators.

    Each new iterator draws the seed of its workers. The iterator that is continued drew its seed before it was saved. A second
    draw would change all random numbers that follow.
    """
    attributes = getattr(obj, "__dict__", {})
    if attributes.get("next_iter_state") is not None and callable(getattr(obj, MADE, None)):
        # Set in the dict itself, as a bound method, which is copied and pickled like the class's own.
        attributes[MADE] = types.MethodType(_get_iterator, obj)


def _with_generator(obj: Any, state: Any) -> Any:
    """Adds the state of a loader's generator to the loader's state, which does not restore the generator exactly."""
    generator = getattr(obj, "generator", None)
    if "next_iter_state" not in getattr(obj, "__dict__", {}) or generator is None or not isinstance(state, dict):
        return state
    return {**state, _GENERATOR: generator.get_state()}


def _get_iterator(loader: Any) -> Any:
    vars(loader).pop(MADE, None)
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
