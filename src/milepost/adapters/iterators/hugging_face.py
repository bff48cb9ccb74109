"""Iterable data sets of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from milepost.adapters.iterators.any_library import StatefulAdapter, is_of
from milepost.adapters.iterators.private import EXAMPLES, LATEST, STARTING
from milepost.adapters.iterators.pytorch import is_loader
from milepost.facts import Fact
from milepost.graph.adapter import register

_loaded: Final[Fact[tuple[Any, Any]]] = Fact()
"""Of a data set: the restored state, and the state that the data set had then."""


class HuggingFaceAdapter(StatefulAdapter):
    """Iterable data sets."""

    def handles(self, kind: type) -> bool:
        return is_of(kind, "datasets.") and super().handles(kind)

    def state(self, obj: Any) -> Any:
        loaded = _loaded.get(obj)
        if loaded is not None:
            state, before = loaded
            if vars(obj).get(LATEST) is before:  # no iterator was made since: it would have replaced this
                return state
        return super().state(obj)

    def load(self, obj: Any, state: Any) -> None:
        super().load(obj, state)
        if STARTING in vars(obj):
            _loaded[obj] = (state, vars(obj).get(LATEST))
            # A data set ignores a state of a different epoch.
            if isinstance(state, dict) and "epoch" in state and state["epoch"] != obj.epoch:
                obj.set_epoch(state["epoch"])

    def before_assign(self, obj: Any) -> Callable[[], object]:
        if STARTING not in vars(obj):
            return super().before_assign(obj)
        # Loading only notes a state for the next iterator, and asking for the state would start an iterator.
        before, epoch = dict(vars(obj)), obj.epoch

        def undo() -> None:
            vars(obj).clear()
            vars(obj).update(before)
            obj.set_epoch(epoch)

        return undo


def shuffles_in_a_buffer(data: Any) -> bool:
    """Whether a data set shuffles in a buffer, which is not saved."""
    part = vars(data).get(EXAMPLES) if is_of(type(data), "datasets.") and hasattr(data, "__dict__") else None
    while part is not None and type(part).__name__ != "BufferShuffledExamplesIterable":
        part = getattr(part, "ex_iterable", None)
    return part is not None


def forget_start(obj: Any) -> None:
    """Makes the next iterator of a Hugging Face data set start at the beginning, and not where it was restored."""
    parts: list[Any] = [obj, *([obj.dataset] if is_loader(obj) else [])]
    for data in parts:
        if getattr(data, "__dict__", {}).get(STARTING) is not None:
            data.load_state_dict(None)


register(HuggingFaceAdapter())
